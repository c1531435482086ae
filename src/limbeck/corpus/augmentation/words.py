"""The words of a text that augmentation may replace, and the words in the vocabulary of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import regex
from transformers import PreTrainedTokenizerBase

from limbeck.corpus.augmentation.stop_words import comparable_word, stop_words_of
from limbeck.corpus.settings import Augmentation, ModelName
from limbeck.corpus.tokens.vocabulary import word_beginnings
from limbeck.errors import CorpusError
from limbeck.models.tokenizers import load_tokenizer

# Each ideograph is a word, as BERT reads it.
_IDEOGRAPHS = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
# Letters and digits with their marks; the two joiners stand within words of Indic scripts and of Persian.
_LETTERS = rf"[\p{{L}}\p{{M}}\p{{N}}_\u200c\u200d--[{_IDEOGRAPHS}]]+"
WORD = regex.compile(rf"[{_IDEOGRAPHS}]|{_LETTERS}(?:['’]{_LETTERS})*", regex.VERSION1)
"""A word of a text: an ideograph, or letters and digits, perhaps with apostrophes between them."""

_BETWEEN_MARKS = regex.compile(
    rf"[{_IDEOGRAPHS}]|[^\s\p{{P}}$+<=>^`|~{_IDEOGRAPHS}]+",
    regex.VERSION1,
)
"""A word as BERT's tokenizer cuts them before it looks for pieces: at spaces and around each punctuation mark."""
_ONLY_LETTERS = regex.compile(r"[\p{L}\p{M}\u200c\u200d]+", regex.VERSION1)


def find_words(text: str, settings: Augmentation) -> Iterator[regex.Match[str]]:
    """Iterate over the words of a text that an augmentation may replace, from left to right.

    The printed algorithm replaces any word. The released one cuts words as BERT's tokenizer does, and replaces only
    words of letters. Neither replaces a stop word of the settings.

    Args:
        text: The text.
        settings: The algorithm and its stop words.
    """
    is_released = settings.algorithm == "released"
    stop_words = stop_words_of(settings)
    pattern = _BETWEEN_MARKS if is_released else WORD
    for match in pattern.finditer(text):
        word = match.group()
        if is_released and not _ONLY_LETTERS.fullmatch(word):
            continue
        if comparable_word(word) not in stop_words:
            yield match


def fast_tokenizer(name: ModelName) -> PreTrainedTokenizerBase:
    """Load a fast tokenizer, which gives the place of each token in a text.

    Raises:
        CorpusError: if the model has only a slow tokenizer.
    """
    tokenizer = load_tokenizer(name[0], revision=name[1])
    if not tokenizer.is_fast:
        raise CorpusError(
            f"Augmentation needs the position of every token in the text, which the slow tokenizer of '{name[0]}' "
            "does not provide: name a model with a fast tokenizer (one with a tokenizer.json)."
        )
    return tokenizer


def pieces_of(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each word as it stands behind a space, without special tokens."""
    if not words:  # Tokenizers fail on an empty list.
        return []
    ids: list[list[int]] = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    return ids


def vocabulary_words(tokenizer: PreTrainedTokenizerBase, *, punctuation: bool = False) -> dict[int, str]:
    """Return the words that are a single token: token id → word.

    Args:
        tokenizer: The tokenizer.
        punctuation: Whether to return tokens of punctuation too. Special tokens, and tokens that go on with a word, are
            left out in any case.
    """
    words: dict[int, str] = {}
    for index in sorted(word_beginnings(tokenizer).values()):
        word = tokenizer.decode([index]).strip()
        is_word = WORD.fullmatch(word) is not None
        if is_word or (punctuation and word):
            words[index] = word
    return words
