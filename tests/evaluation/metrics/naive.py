"""The scripts of SQuAD, MLQA and CMRC 2018 step by step, slowly and without the package."""

from __future__ import annotations

import itertools
import string
import unicodedata
from collections.abc import Callable, Sequence

ARTICLES: dict[str, set[str]] = {
    "en": {"a", "an", "the"},
    "es": {"un", "una", "unos", "unas", "el", "la", "los", "las"},
    "de": {"ein", "eine", "einen", "einem", "eines", "einer", "der", "die", "das", "den", "dem", "des"},
    "vi": {"của", "là", "cái", "chiếc", "những"},
    "hi": set(),
    "zh": set(),
}
Tokens = Callable[[str], list[str]]


def without_articles(text: str, language: str) -> str:
    """Blank every run of letters that is an article."""
    runs = [list(run) for _, run in itertools.groupby(text, lambda character: character.isalnum())]
    return "".join(" " if "".join(run) in ARTICLES[language] else "".join(run) for run in runs)


def squad_tokens(text: str) -> list[str]:
    kept = [character for character in text.lower() if character not in string.punctuation]
    return without_articles("".join(kept), "en").split()


def mlqa_tokens(language: str) -> Tokens:
    def tokens(text: str) -> list[str]:
        kept = ""
        for character in text.lower():
            if not unicodedata.category(character).startswith("P") and character not in string.punctuation:
                kept += character
        if language == "ar":
            return " ".join(kept.split("ال")).split()
        if language == "zh":
            found, word = [], ""
            for character in kept:
                if "一" <= character <= "龥":
                    found += [*word.split(), character]
                    word = ""
                else:
                    word += character
            return found + word.split()
        return without_articles(kept, language).split() if ARTICLES[language] else kept.split()

    return tokens


def overlap(ours: list[str], theirs: list[str]) -> int:
    left = list(theirs)
    count = 0
    for token in ours:
        if token in left:
            left.remove(token)
            count += 1
    return count


def exact(prediction: str, golds: Sequence[str], tokens: Tokens) -> float:
    return float(any(tokens(prediction) == tokens(gold) for gold in golds))


def f1(prediction: str, golds: Sequence[str], tokens: Tokens, *, empty_is_right: bool = False) -> float:
    best = 0.0
    for gold in golds:
        ours, theirs = tokens(prediction), tokens(gold)
        if empty_is_right and (not ours or not theirs):
            best = max(best, float(ours == theirs))
            continue
        common = overlap(ours, theirs)
        if common:
            best = max(best, 2 * common / (len(ours) + len(theirs)))
    return best


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    best = 0
    for start in range(len(first)):
        for end in range(start + 1, len(first) + 1):
            part = list(first[start:end])
            if any(list(second[at : at + len(part)]) == part for at in range(len(second))):
                best = max(best, end - start)
    return best


def best_threshold(scores: list[float], odds: list[float], answerable: list[bool]) -> tuple[float, float]:
    """Every threshold there could be, tried out; of equals the lowest."""
    best, where = sum(not has for has in answerable) / len(scores), 0.0
    for threshold in sorted(set(odds)):
        total = 0.0
        for value, odd, has in zip(scores, odds, answerable, strict=True):
            total += (value if has else 0.0) if odd <= threshold else float(not has)
        if total / len(scores) > best + 1e-12:
            best, where = total / len(scores), threshold
    return best, where
