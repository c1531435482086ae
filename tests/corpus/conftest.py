"""Tiny tokenizers of each layout of special tokens, made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.corpora import byte_tokenizer


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
