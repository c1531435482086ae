"""Texts, and tokenizers of a token a byte for each layout of special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.support.word_models import WORDS


def write_text(folder: Path, count: int = 24) -> Path:
    """Write documents with several sentences each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(documents(count)):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder


def documents(count: int = 40, sentences: int = 6) -> list[str]:
    """Documents of a summary line, a blank line and two paragraphs; no sentence occurs twice."""
    generator = torch.Generator().manual_seed(1)

    def sentence(number: int) -> str:
        chosen = torch.randint(0, len(WORDS), (8,), generator=generator).tolist()
        return f"The {' '.join(WORDS[i] for i in chosen)} {number}."

    made = []
    for document in range(count):
        first = document * (2 * sentences + 1)
        paragraphs = [" ".join(sentence(first + 1 + part * sentences + i) for i in range(sentences)) for part in (0, 1)]
        made.append("\n\n".join([sentence(first), *paragraphs]))
    return made


BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_tokenizer(template: str | None, **special: str) -> PreTrainedTokenizerFast:
    """A tokenizer of one token a byte, with the special tokens and template given."""
    names = list(special.values())
    vocabulary = {token: number for number, token in enumerate([*dict.fromkeys(names), *BYTES])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(names)
    if template is not None:
        used = [(name, vocabulary[name]) for name in names if name in template]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def bert_byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of one token a byte with BERT's special tokens."""
    return byte_tokenizer(
        "[CLS] $A [SEP]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
    )


TOKENIZER = bert_byte_tokenizer()


def decode(tokenizer: Any, ids: list[int]) -> str:
    """The text of a block, without its special tokens."""
    return str(tokenizer.decode(ids, skip_special_tokens=True))
