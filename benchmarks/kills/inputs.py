"""What the jobs read: generated text, tiny random models, and a task with rows that a tiny model can learn."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, PreTrainedTokenizerFast

from limbeck.models.quiet import quiet
from limbeck.models.students import build_student

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORDS = tuple(f"{first}{vowel}{last}" for first in "bdklmnprst" for vowel in "aeiou" for last in "lnrst")
LENGTH = 64


def sentences(dice: random.Random, count: int) -> str:
    made = (" ".join(dice.choices(_WORDS, k=dice.randint(4, 12))).capitalize() for _ in range(count))
    return ". ".join(made) + "."


def documents(count: int, seed: int) -> list[str]:
    """Texts of two to six sentences; no two are equal."""
    dice = random.Random(seed)
    return [f"{sentences(dice, dice.randint(2, 6))} Text {seed} {number}." for number in range(count)]


def write_text(path: Path, texts: list[str]) -> None:
    """Write documents with blank lines between them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def write_jsonl(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer that knows the words, and spells others."""
    pieces = [*_SPECIAL, *_LETTERS, *"0123456789.", *(f"##{one}" for one in _LETTERS + "0123456789"), *_WORDS]
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), _SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=LENGTH, **names)


def write_model(folder: Path, layers: int, *, seed: int = 0) -> None:
    """Save a random BERT of width 32; its weights are drawn wider than usual, so that its layers differ."""
    own = tokenizer()
    sizes = {"num_hidden_layers": layers, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(own), max_position_embeddings=LENGTH, pad_token_id=0, **sizes)
    model = build_student(config, seed=seed, head="masked_lm")
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
    with quiet():
        model.save_pretrained(folder)
        own.save_pretrained(folder)


def write_task(folder: Path, *, train: int = 48, validation: int = 24) -> Path:
    """Write a task of two classes, whether a text has more words with an a or with an o; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("validation", validation)):
        rows = _labelled(random.Random(split), count)
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    described = {
        "name": "vowels",
        "type": "classification",
        "labels": ["o", "a"],
        "columns": {"text": "text", "label": "label"},
        "metric": ["accuracy", "f1"],
        "positive": "a",
        "files": {"train": "train.jsonl", "validation": "validation.jsonl"},
    }
    path = folder / "vowels.yaml"
    path.write_text(yaml.safe_dump(described), encoding="utf-8")
    return path


def _labelled(dice: random.Random, count: int) -> Iterator[dict[str, str]]:
    for _ in range(count):
        text = " ".join(dice.choices(_WORDS, k=dice.randint(4, 12)))
        yield {"text": text, "label": "a" if text.count("a") > text.count("o") else "o"}
