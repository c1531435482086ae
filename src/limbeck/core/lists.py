"""Lists as text: numbers, layers and names by commas, as commands take them."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from limbeck.errors import RecipeError

Item = TypeVar("Item")
MOST = 1_000_000
"""The largest number in a list of sizes: above it there is no text so long and no model so wide."""


def parse_list(text: str, read: Callable[[str], Iterable[Item]], refusal: str) -> list[Item]:
    """Read parts separated by commas.

    Args:
        text: The value of an option.
        read: Returns the items that a part stands for; raises ValueError where it cannot.
        refusal: The message for a part that cannot be read.

    Raises:
        RecipeError: for such a part.
    """
    try:
        return [item for part in text.split(",") for item in read(part.strip())]
    except ValueError:
        raise RecipeError(refusal) from None


def whole_number(text: str, least: int = 0, most: int = 10**9) -> int:
    """Read digits.

    Raises:
        ValueError: for anything else, and a number that is not within the bounds.
    """
    # Digits are counted first: Python refuses to read thousands of them.
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise ValueError(text)
    return int(text)


def parse_names(option: str, text: str) -> dict[str, str]:
    """Read `NAME=NAME` pairs, separated by commas.

    Raises:
        RecipeError: for a pair that lacks a name, or a name that is given twice.
    """
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, other = map(str.strip, part.partition("="))
        if not (name and other) or name in found:
            problem = f"names '{name}' twice" if name in found else f"has '{part[:40]}'"
            raise RecipeError(
                f"{option} {problem}; write a pair for each, separated by commas: LABEL_0=entailment,LABEL_1=neutral."
            )
        found[name] = other
    return found


def parse_numbers(option: str, text: str) -> list[int]:
    """Read whole numbers from 1 to `MOST`, separated by commas.

    Raises:
        RecipeError: for anything else.
    """
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    refusal = f"{option} '{shown}' must be whole numbers from 1 to {MOST:,}, separated by commas: 128,512."
    return parse_list(text, lambda part: [whole_number(part, 1, MOST)], refusal)


def parse_layers(option: str, text: str) -> list[int]:
    """Read layers such as `1-8,10`.

    Raises:
        RecipeError: for anything else.
    """

    def read(part: str) -> range:
        first, dash, last = part.partition("-")
        # No teacher is deeper, and a range of billions would take all memory.
        start, end = (whole_number(piece.strip(), most=999) for piece in (first, last if dash else first))
        if start > end:
            raise ValueError(part)
        return range(start, end + 1)

    refusal = f"{option} '{text}' cannot be read; give layers and ranges separated by commas, such as 1-8,10."
    return list(dict.fromkeys(parse_list(text, read, refusal)))


def parse_multiples(option: str, text: str) -> list[float]:
    """Read numbers above 0, whole or not, separated by commas.

    Raises:
        RecipeError: for anything else.
    """

    def read(part: str) -> list[float]:
        number = float(part)
        if not 0 < number < 1000:
            raise ValueError(part)
        return [int(number) if number.is_integer() else number]

    return parse_list(text, read, f"{option} '{text}' must be numbers above 0, separated by commas: 2,4.")
