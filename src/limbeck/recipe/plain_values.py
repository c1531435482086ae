"""Rules for every value of a document, whichever key it has: bounded, and text without control characters."""

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

from limbeck.core.yaml import DEEPEST, MOST_DIGITS
from limbeck.errors import RecipeError

LONGEST_TEXT = 4096
"""Characters; no path of a file is longer."""

_UNPRINTABLE_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Categories of Unicode: control characters, lone surrogates, separators of lines and of paragraphs."""
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of what follows, so that a name shows as another."""


def check_plain(data: Any, place: str = "", depth: int = 0) -> None:
    """Refuse what no key may hold: text that a terminal or a file name cannot show, and data without end.

    Args:
        data: A recipe, or a part of it.
        place: Where the part is, for the message.
        depth: Levels above it.

    Raises:
        RecipeError: for a control character, a lone surrogate, text longer than a path may be, a number that is not
            finite or longer than any, or too many levels.
    """
    if depth > DEEPEST:
        raise RecipeError(
            f"{place[:80]}: more than {DEEPEST} levels of nested lists and mappings, but no key of a recipe is "
            "that deep; remove some."
        )
    if isinstance(data, str):
        _check_text(data, place)
    elif isinstance(data, int) and abs(data) >= 10**MOST_DIGITS:
        raise RecipeError(
            f"{place}: a number of more than {MOST_DIGITS} digits, which no key of a recipe takes; give a smaller "
            "number."
        )
    elif isinstance(data, float) and not math.isfinite(data):
        raise RecipeError(f"{place} is {data}; give a finite number.")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(key, str):
                _check_text(key, f"a key of {place or 'the recipe'}")
            place_of_value = f"{place}.{key}" if place else str(key)
            check_plain(value, place_of_value, depth + 1)
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            check_plain(value, f"{place}.{index}", depth + 1)


def _check_text(text: str, place: str) -> None:
    """Refuse a text that is too long or has characters that no name may have."""
    if len(text) > LONGEST_TEXT:
        raise RecipeError(f"{place}: {text[:60]!r}… has {len(text):,} characters; give at most {LONGEST_TEXT:,}.")
    for character in text:
        if unicodedata.category(character) in _UNPRINTABLE_CATEGORIES or character in _DIRECTION_MARKS:
            raise RecipeError(
                f"{place}: {text[:80]!a} has the character {character!a}, which cannot be printed and is not "
                "allowed in names; leave the character out."
            )
