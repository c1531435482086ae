"""Tiny tokenizers of each layout of special tokens, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

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


@pytest.fixture
def bert_tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer(
        "[CLS] $A [SEP]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
    )


@pytest.fixture
def llama_tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer("<s> $A", bos_token="<s>", eos_token="</s>")


@pytest.fixture
def plain_tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer(None, eos_token="<|end|>")


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    """A folder with one text file of 40 documents of three sentences in two paragraphs."""
    folder = tmp_path / "articles"
    folder.mkdir()
    texts = [
        f"Article {number} begins here. It has a second sentence.\nIts last paragraph ends number {number}."
        for number in range(40)
    ]
    (folder / "all.txt").write_text("\n\n".join(texts))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def decode(tokenizer: Any, ids: list[int]) -> str:
    """The text of a block, without its special tokens."""
    return str(tokenizer.decode(ids, skip_special_tokens=True))
