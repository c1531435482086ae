"""`ClassNumbers`: class labels as data sets write them to the class numbers of the teacher."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from limbeck.errors import CorpusError


class ClassNumbers:
    """Finds the number of a class by its name, in any case, or by the number itself.

    A data set that states names for its own numbers (parquet files and Hub data sets may) is understood by the names
    when the teacher has all of them: the two may number the classes differently.

    Args:
        labels: Class names in the order of their numbers.

    Raises:
        CorpusError: if there are no names.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        if not labels:
            raise CorpusError("Classification has no class names: give labels, in the order of the teacher's id2label.")
        self._labels = tuple(labels)
        folded = [label.casefold() for label in labels]
        self._numbers = {name: folded.index(name) for name in folded if folded.count(name) == 1}
        self._numbers |= {label: number for number, label in enumerate(labels)}
        # Where names are numbers ("1" to "5" stars), a number is a name: 1 must not be taken for the second class.
        if not any(label.strip().isdecimal() for label in labels):
            self._numbers |= {str(number): number for number in range(len(labels))}

    def number(self, value: Any, where: str, names: Sequence[str] = ()) -> int:
        """Return the number of the class that a row is labelled with.

        Args:
            value: Name or number, as read.
            where: Where the row stands.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if it is neither.
        """
        if isinstance(value, int) and 0 <= value < len(names) and self._knows(names):
            value = names[value]
        for spelling in _spellings(value):
            if spelling in self._numbers:
                return self._numbers[spelling]
        known = ", ".join(self._labels[:20]) + (", …" if len(self._labels) > 20 else "")
        raise CorpusError(
            f"{where} has the label {value!r}, which is none of the teacher's classes ({known}) nor a number from 0 to "
            f"{len(self._labels) - 1}."
        )

    def __contains__(self, value: Any) -> bool:
        return str(value).strip() in self._labels

    def _knows(self, names: Sequence[str]) -> bool:
        return all(name in self._numbers or name.casefold() in self._numbers for name in names)


def parse_value(value: Any, where: str) -> float:
    """Return the value that a row is labelled with.

    Args:
        value: A number, or text that spells one.
        where: Where the row stands.

    Raises:
        CorpusError: if it is not a finite number.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise CorpusError(f"{where} has the label {value!r}, which is not a finite number.")
    return number


def is_missing(value: Any) -> bool:
    """Whether a label is none: null, empty text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _spellings(value: Any) -> Iterator[str]:
    text = str(value).strip()
    yield text
    yield text.casefold()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return
    if number.is_integer():  # True, 1.0 and "1.0" are all 1.
        yield str(int(number))
