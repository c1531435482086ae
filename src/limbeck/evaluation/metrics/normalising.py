"""Answers before they are compared: SQuAD's normalisation, and MLQA's of each language."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from functools import lru_cache

from limbeck.errors import CorpusError, suggestion

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ENGLISH_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

_ARTICLES: dict[str, re.Pattern[str] | None] = {
    "en": _ENGLISH_ARTICLES,
    "es": re.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "hi": None,
    "vi": re.compile(r"\b(?:của|là|cái|chiếc|những)\b"),
    "de": re.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    # The script's pattern has a second branch, which can never match.
    "ar": re.compile("ال"),
    "zh": None,
}
MLQA_LANGUAGES = tuple(_ARTICLES)

_CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")


def normalise_answer(text: str) -> str:
    """Return an answer in lower case without ASCII punctuation, English articles and repeated white space.

    Source: the evaluation scripts of SQuAD 1.1 and 2.0.
    """
    bare = text.lower().translate(_ASCII_PUNCTUATION)
    return " ".join(_ENGLISH_ARTICLES.sub(" ", bare).split())


def normalise_answer_of(text: str, language: str) -> str:
    """Return an answer as MLQA compares it: without Unicode punctuation and without the articles of its language.

    Chinese is cut into its characters, with words of other scripts whole.

    Args:
        text: The answer.
        language: One of `MLQA_LANGUAGES`.

    Raises:
        CorpusError: for another language.

    Source: the evaluation script of MLQA (arXiv 1910.07475, section 5).
    """
    if language not in _ARTICLES:
        raise CorpusError(f"MLQA's metric has no rules for the language '{language}'.{suggestion(language, _ARTICLES)}")
    bare = text.lower().translate(_unicode_punctuation())
    articles = _ARTICLES[language]
    if articles is not None:
        bare = articles.sub(" ", bare)
    if language == "zh":
        bare = _CHINESE_CHARACTER.sub(r" \1 ", bare)
    return " ".join(bare.split())


@lru_cache(maxsize=1)
def _unicode_punctuation() -> dict[int, None]:
    """Every character of a category P, and the ASCII ones that Unicode counts as symbols."""
    points = (point for point in range(sys.maxunicode) if unicodedata.category(chr(point)).startswith("P"))
    return dict.fromkeys([*points, *map(ord, string.punctuation)])
