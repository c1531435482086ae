"""Tiny tokenizers of each layout of special tokens, made on the spot."""

import pytest

from tests.support.corpora import bert_byte_tokenizer, byte_tokenizer
from tests.support.streams import write_texts


@pytest.fixture
def bert_tokenizer():
    return bert_byte_tokenizer()


@pytest.fixture
def llama_tokenizer():
    return byte_tokenizer("<s> $A", bos_token="<s>", eos_token="</s>")


@pytest.fixture
def plain_tokenizer():
    return byte_tokenizer(None, eos_token="<|end|>")


@pytest.fixture
def articles(tmp_path):
    """A folder with one text file of 40 documents of three sentences in two paragraphs."""
    text = "Article {0} begins here. It has a second sentence.\nIts last paragraph ends number {0}."
    return write_texts(tmp_path / "articles" / "all.txt", [text.format(number) for number in range(40)]).parent


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"
