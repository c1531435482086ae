"""The words of a text that augmentation may replace, and the words in the vocabulary of a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from limbeck.corpus.settings import ModelName
from limbeck.corpus.tokens.vocabulary import word_beginnings
from limbeck.errors import CorpusError
from limbeck.models.tokenizers import load_tokenizer

# A word has letters and digits, perhaps with apostrophes between them. Each ideograph is a word, as BERT reads it.
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTERS = rf"[^\W{_IDEOGRAPHS}]+"
WORD = re.compile(rf"[{_IDEOGRAPHS}]|{_LETTERS}(?:['’]{_LETTERS})*")
"""A word of a text."""


def fast_tokenizer(name: ModelName) -> PreTrainedTokenizerBase:
    """Load a fast tokenizer, which gives the place of each token in a text.

    Raises:
        CorpusError: if the model has only a slow tokenizer.
    """
    tokenizer = load_tokenizer(name[0], revision=name[1])
    if not tokenizer.is_fast:
        raise CorpusError(
            f"Augmentation needs the position of every token in the text, which the slow tokenizer of '{name[0]}' "
            "does not provide: name a model with a fast one (a tokenizer.json)."
        )
    return tokenizer


def pieces_of(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each word as it stands behind a space, without special tokens."""
    if not words:  # Tokenizers fail on an empty list.
        return []
    ids: list[list[int]] = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    return ids


def vocabulary_words(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Return the words that are a single token: token id → word."""
    words: dict[int, str] = {}
    for index in sorted(word_beginnings(tokenizer).values()):
        word = tokenizer.decode([index]).strip()
        if WORD.fullmatch(word):
            words[index] = word
    return words
