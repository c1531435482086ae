"""Lists as text: numbers, layers and names separated by commas, as the options of commands take them."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from limbeck.errors import RecipeError

Item = TypeVar("Item")
MOST = 1_000_000
"""The largest number in a list of sizes: above it there is no text so long and no model so wide."""
_DEEPEST_LAYER = 999
"""No teacher is deeper, and a range of billions would take all memory."""
_LONGEST_SHOWN = 40
"""Characters of a refused text in a message."""
_MOST_DIGITS = 9
"""Most digits of a whole number."""
_LARGEST = 10**_MOST_DIGITS - 1
"""The largest number of so many digits."""
_MULTIPLES_END = 1000
"""Multiples are below this number: no layer has so many times its width as neurons."""


def parse_list(text: str, read: Callable[[str], Iterable[Item]], refusal: str) -> list[Item]:
    """Read parts separated by commas.

    Args:
        text: The value of an option.
        read: Returns the items that a part stands for; raises ValueError where it cannot.
        refusal: The message for a part that cannot be read.

    Raises:
        RecipeError: for such a part.
    """
    items: list[Item] = []
    try:
        for part in text.split(","):
            items += read(part.strip())
    except ValueError:
        raise RecipeError(refusal) from None
    return items


def whole_number(text: str, least: int = 0, most: int = _LARGEST) -> int:
    """Read a whole number that is written in digits alone, at most `_MOST_DIGITS` of them.

    Raises:
        ValueError: for anything else, and a number that is not within the bounds.
    """
    # Long texts are refused before `int` sees them, which has a limit and an error of its own.
    is_short_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_short_number:
        raise ValueError(text)
    number = int(text)
    if not least <= number <= most:
        raise ValueError(text)
    return number


def parse_names(option: str, text: str) -> dict[str, str]:
    """Read `NAME=NAME` pairs, separated by commas.

    Raises:
        RecipeError: for a pair that lacks a name, or a name that is given twice.
    """
    names: dict[str, str] = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        left, _, right = pair.partition("=")
        name = left.strip()
        new_name = right.strip()
        problem = None
        if name in names:
            problem = f"names '{name}' twice"
        elif not name or not new_name:
            problem = f"has '{pair.strip()[:_LONGEST_SHOWN]}'"
        if problem is not None:
            raise RecipeError(
                f"{option} {problem}; write a pair for each, separated by commas: LABEL_0=entailment,LABEL_1=neutral."
            )
        names[name] = new_name
    return names


def parse_numbers(option: str, text: str) -> list[int]:
    """Read whole numbers from 1 to `MOST`, separated by commas.

    Raises:
        RecipeError: for anything else.
    """

    def read(part: str) -> list[int]:
        return [whole_number(part, least=1, most=MOST)]

    shown = text
    if len(text) > _LONGEST_SHOWN:
        shown = f"{text[:_LONGEST_SHOWN]}…"
    refusal = f"{option} '{shown}' must be whole numbers from 1 to {MOST:,}, separated by commas: 128,512."
    return parse_list(text, read, refusal)


def parse_layers(option: str, text: str) -> list[int]:
    """Read layers such as `1-8,10`.

    Returns:
        The layers in the order of the text, each once.

    Raises:
        RecipeError: for anything else.
    """

    def read(part: str) -> range:
        first, dash, last = part.partition("-")
        first_layer = whole_number(first.strip(), most=_DEEPEST_LAYER)
        last_layer = first_layer
        if dash:
            last_layer = whole_number(last.strip(), most=_DEEPEST_LAYER)
        if first_layer > last_layer:
            raise ValueError(part)
        return range(first_layer, last_layer + 1)

    refusal = f"{option} '{text}' cannot be read; give layers and ranges separated by commas, such as 1-8,10."
    layers = parse_list(text, read, refusal)
    return list(dict.fromkeys(layers))


def parse_multiples(option: str, text: str) -> list[float]:
    """Read numbers above 0 and below `_MULTIPLES_END`, whole or not, separated by commas.

    Returns:
        The numbers. A whole one is an int, so that it is shown as `4` and not as `4.0`.

    Raises:
        RecipeError: for anything else.
    """

    def read(part: str) -> list[float]:
        number = float(part)
        # A comparison with nan is false, so nan is refused too.
        if not 0 < number < _MULTIPLES_END:
            raise ValueError(part)
        if number.is_integer():
            return [int(number)]
        return [number]

    return parse_list(text, read, f"{option} '{text}' must be numbers above 0, separated by commas: 2,4.")


def enumerate_words(words: Sequence[str], conjunction: str) -> str:
    """Return words as a sentence lists them: `a, b or c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
