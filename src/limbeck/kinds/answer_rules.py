"""Rules by which answers are compared: those of the scripts of SQuAD, MLQA and CMRC 2018.

A *gold* answer is one of the data set's. Every comparison gives two results: whether prediction and gold answer are the
same once they are normalised, and the F1 of the words that they share.
"""

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache

from limbeck.errors import CorpusError
from limbeck.kinds.chinese_segments import CHINESE_CHARACTER, mixed_segments, remove_punctuation

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
        raise CorpusError(
            f"MLQA's metric cannot compare answers in the language '{language}'; choose one of {', '.join(_ARTICLES)}."
        )
    bare = text.lower().translate(_unicode_punctuation())
    articles = _ARTICLES[language]
    if articles is not None:
        bare = articles.sub(" ", bare)
    if language == "zh":
        bare = CHINESE_CHARACTER.sub(r" \1 ", bare)
    return " ".join(bare.split())


@lru_cache(maxsize=1)
def _unicode_punctuation() -> dict[int, None]:
    """Return every character of a category P, and the ASCII ones that Unicode counts as symbols, to be deleted."""
    deleted: dict[int, None] = {}
    for point in range(sys.maxunicode):
        if unicodedata.category(chr(point)).startswith("P"):
            deleted[point] = None
    for character in string.punctuation:
        deleted[ord(character)] = None
    return deleted


Compare = Callable[[str, str], tuple[bool, float]]
"""Prediction and one gold answer to whether they are the same, and to their F1."""


def compare_squad(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as SQuAD 1.1 does: two answers that are empty once normalised (`the`, `a`) are the same, with F1 0."""
    return compare_tokens(normalise_answer(prediction), normalise_answer(gold))


def compare_squad2(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as SQuAD 2.0 does: if one answer is empty once normalised, the F1 is 1 if both are, and 0 otherwise."""
    prediction = normalise_answer(prediction)
    gold = normalise_answer(gold)
    if not prediction or not gold:
        is_same = prediction == gold
        return is_same, float(is_same)
    return compare_tokens(prediction, gold)


def compare_cmrc(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as CMRC 2018 does: the F1 is that of the longest common run of characters and words."""
    is_same = remove_punctuation(prediction) == remove_punctuation(gold)
    predicted_segments = mixed_segments(prediction)
    gold_segments = mixed_segments(gold)
    matcher = SequenceMatcher(None, predicted_segments, gold_segments, autojunk=False)
    common = matcher.find_longest_match().size
    return is_same, _f1(common, len(predicted_segments), len(gold_segments))


def compare_tokens(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare normalised answers: the F1 is that of the words they share, each as often as it stands in both."""
    predicted_words = prediction.split()
    gold_words = gold.split()
    common = (Counter(predicted_words) & Counter(gold_words)).total()
    return prediction == gold, _f1(common, len(predicted_words), len(gold_words))


def _f1(common: int, predicted: int, gold: int) -> float:
    """Return the F1 by the numbers of common, predicted and gold words; 0 where none is common."""
    if common == 0:
        return 0.0
    precision = common / predicted
    recall = common / gold
    return 2 * precision * recall / (precision + recall)
