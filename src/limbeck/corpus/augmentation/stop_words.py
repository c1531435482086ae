"""Stop words: function words that an augmentation never replaces, since a copy without them may say the opposite."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import yaml

from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import Augmentation
from limbeck.errors import CorpusError

_ENGLISH = Path(__file__).with_name("english_stop_words.yaml")
_APOSTROPHES = str.maketrans("’", "'")
_MOST_BYTES = 1 << 20
"""A longer file is no list of function words."""


@lru_cache(maxsize=1)
def english_stop_words() -> tuple[str, ...]:
    """Return the 173 English stop words of TinyBERT's released augmentation, in lower case.

    Source:
        `english_stop_words.yaml` beside this file names it.
    """
    lines: list[list[str]] = yaml.safe_load(_ENGLISH.read_text(encoding="utf-8"))
    return tuple(word for line in lines for word in line)


def read_stop_words(path: Path) -> tuple[str, ...]:
    """Read stop words from a text file with a word on each line; empty lines and lines that begin with # are skipped.

    Raises:
        CorpusError: if the file cannot be read as UTF-8, holds no word, or is longer than a list of words.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CorpusError(f"Cannot read '{safe_name(path)}': {error.strerror}.") from error
    if len(content) > _MOST_BYTES:
        raise CorpusError(
            f"'{safe_name(path)}' has more than {_MOST_BYTES:,} bytes, too many for a list of stop words: give a "
            "text file with one word on each line."
        )
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise CorpusError(
            f"'{safe_name(path)}' is not in UTF-8: save the file as UTF-8, with a word on each line."
        ) from None

    words: list[str] = []
    for line in lines:
        word = line.strip()
        if word and not word.startswith("#"):
            words.append(word)
    if not words:
        raise CorpusError(f"'{safe_name(path)}' holds no stop words: give a text file with a word on each line.")
    return tuple(words)


def stop_words_of(settings: Augmentation) -> frozenset[str]:
    """Return the words that an augmentation never replaces, as `comparable_word` writes them.

    The released algorithm cuts a text at apostrophes, as BERT does, so that the parts of "don't" are words too: "don"
    and "t".
    """
    words = settings.stop_words
    if words is None:
        words = english_stop_words() if settings.algorithm == "released" else ()
    return _with_parts(words)


@lru_cache(maxsize=8)
def _with_parts(words: Iterable[str]) -> frozenset[str]:
    """Return words and their parts between apostrophes."""
    stop_words: set[str] = set()
    for word in map(comparable_word, words):
        stop_words.add(word)
        stop_words.update(word.split("'"))
    return frozenset(stop_words)


def comparable_word(word: str) -> str:
    """Return a word in lower case, with a plain apostrophe for a typographic one."""
    return word.translate(_APOSTROPHES).casefold()
