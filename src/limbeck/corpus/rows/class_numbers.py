"""Labels as sources write them: the numbers of classes by their names, values, and labels that are missing."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from limbeck.core.kinds import are_made_up
from limbeck.errors import CorpusError

TEACHERS_CLASSES = "the teacher's classes"
_SHOWN_CLASSES = 20
_TRUTH_VALUES = {"false": "0", "true": "1"}
"""Truth values as tables have them, and the numbers that they stand for."""
_MADE_UP_NAME = re.compile(r"LABEL_(\d+)", re.IGNORECASE)
_SEPARATORS = "|;,"
"""What may stand between several classes in a text; the first of these that the text has is taken."""
_LIST_QUOTES = " '\""


ListReading: TypeAlias = Literal["numbers", "flags"]
"""What numbers in a list are: those of the classes that a row has, or 1 or 0 for each class."""
MOST_AMBIGUOUS_CLASSES = 2
"""With more classes, a list with 1 or 0 for each class has a number twice, as no list of classes has."""


class ClassNumbers:
    """Finds the number of a class by its name, in any case, or by the number itself.

    A data set that states names for its own numbers (parquet files and Hub data sets may) is understood by the names
    alone: the two may number the classes differently. A number stands for itself where one of the two has no names but
    numbers, or those that `transformers` makes up (`LABEL_0`).

    Args:
        labels: Class names in the order of their numbers.
        owner: Whose they are, for messages.
        lists: What numbers in a list are: those of the classes, or flags, 1 or 0 for each class.

    Attributes:
        lists: The same; None where it is not known.

    Raises:
        CorpusError: if there are no names.
    """

    def __init__(
        self, labels: Sequence[str], owner: str = TEACHERS_CLASSES, *, lists: ListReading | None = None
    ) -> None:
        self.lists = lists
        if not labels:
            raise CorpusError("Classification has no class names: give labels, in the order of the teacher's id2label.")
        self._owner = owner
        self._labels = tuple(labels)
        # A name in another case, where that can only mean one class; then the names themselves, which win over these.
        folded = [_folded(label) for label in labels]
        self._numbers: dict[str, int] = {}
        for number, name in enumerate(folded):
            if folded.count(name) == 1:
                self._numbers[name] = number
        for number, label in enumerate(labels):
            self._numbers[label] = number
        self._takes_numbers = _numbers_are_places(labels)
        if self._takes_numbers:
            for number in range(len(labels)):
                self._numbers[str(number)] = number

    def number(self, value: Any, where: str, names: Sequence[str] = ()) -> int:
        """Return the number of the class that a row is labelled with.

        Args:
            value: Name or number, as read.
            where: Where the row stands.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if it is neither.
        """
        has_names = bool(names) and not are_made_up(names) and not are_made_up(self._labels)
        if has_names and isinstance(value, int) and 0 <= value < len(names):
            value = names[value]
        for spelling in _spellings(value):
            if spelling in self._numbers:
                return self._numbers[spelling]

        known = ", ".join(self._labels[:_SHOWN_CLASSES])
        if len(self._labels) > _SHOWN_CLASSES:
            known += ", …"
        problem = f"{where} has the label {value!r}, which is not one of {self._owner} ({known})"
        if self._takes_numbers and not has_names:
            problem += f" or a number from 0 to {len(self._labels) - 1}"
        is_number = re.fullmatch(r"[+-]?[\d.]+", str(value).strip())
        way_out = "."
        if self._owner == TEACHERS_CLASSES and not is_number:
            way_out = f": correct the label, or rename the classes (teacher.classes: {{{self._labels[0]}: …}})."
        raise CorpusError(f"{problem}{way_out}")

    def flags(self, value: Any, where: str, names: Sequence[str] = ()) -> tuple[int, ...]:
        """Return for each class 1 where a row that may have several is labelled with it, else 0.

        Args:
            value: Names or numbers in a list, or in text between `|`, `;` or `,`; none of them where it has no class.
                A list with 1 or 0 for each class is understood too, see `reading_of_lists`.
            where: Where the row stands.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if one of them is no class, one comes twice, or a list can be read in two ways.
        """
        reading = self.lists or reading_of_lists([value], len(self._labels))
        if reading == "flags" and _is_list_of_flags(value, len(self._labels)):
            return tuple(int(flag) for flag in value)
        if reading is None and _is_list_of_flags(value, len(self._labels)):
            raise CorpusError(
                f"{where} has the label {value!r}, which can be numbers of classes, or 1 or 0 for each class: set "
                "label_lists to numbers or to flags."
            )
        if isinstance(value, str):
            parts: Sequence[Any] = self._split(value)
        elif isinstance(value, Sequence):
            parts = value
        else:
            parts = [value]
        numbers = [self.number(part, where, names) for part in parts]
        if len(set(numbers)) < len(numbers):
            raise CorpusError(
                f"{where} has the label {value!r}, which names a class twice: name each once, or give a column of "
                "0 and 1 for each class (label_columns)."
            )
        return self._flags(numbers)

    def flags_of(self, values: Mapping[str, Any], where: str) -> tuple[int, ...]:
        """Return the same of a row with a column of 0 and 1 for each class.

        Args:
            values: The columns that are named after the classes; where the classes have no names but those that
                `transformers` makes up (`LABEL_0`), all columns in their order.
            where: Where the row stands.

        Raises:
            CorpusError: if the columns are not those of the classes, or one holds something else.
        """
        are_unnamed = list(self._labels) == [f"LABEL_{number}" for number in range(len(self._labels))]
        class_of_column: dict[str, int] = {}
        for place, name in enumerate(values):
            if are_unnamed and len(values) == len(self._labels):
                class_of_column[name] = place
            else:
                class_of_column[name] = self.number(name, f"label_columns of {where}")

        for number, label in enumerate(self._labels):
            if number not in class_of_column.values():
                raise CorpusError(f"label_columns has no column for the class '{label}': give every class a column.")

        numbers: list[int] = []
        for name, value in values.items():
            if _is_set(value, f"{where}, '{name}',"):
                numbers.append(class_of_column[name])
        return self._flags(numbers)

    def __contains__(self, value: Any) -> bool:
        return str(value).strip() in self._labels

    def _flags(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(number in numbers) for number in range(len(self._labels)))

    def _split(self, text: str) -> list[str]:
        """Split text into the names of classes."""
        if text in self:
            return [text]
        names = text.strip()
        if names.startswith("[") and names.endswith("]"):  # A list that was written into a table.
            names = names[1:-1]
        for separator in _SEPARATORS:
            if separator in names:
                break
        parts = [part.strip(_LIST_QUOTES) for part in names.split(separator)]
        return [part for part in parts if part]


def reading_of_lists(values: Iterable[Any], classes: int) -> ListReading | None:
    """Return what numbers in the lists of a column are; None where nothing tells.

    Flags are as many as classes. Truth values and fractions such as 1.0 are flags, and so is a list with a number
    twice. A list of another length, or with a number above 1, has numbers of classes.

    Args:
        values: Of the column, lists and others.
        classes: Number of the classes.
    """
    reading: ListReading | None = None
    for value in values:
        if not isinstance(value, list | tuple):
            continue
        if not _is_list_of_flags(value, classes):
            return "numbers"
        are_no_numbers = any(isinstance(flag, bool | float) for flag in value) or len(set(value)) < len(value)
        if are_no_numbers:
            reading = "flags"
    return reading


def _is_list_of_flags(value: Any, classes: int) -> bool:
    """Whether a value is a list with 1 or 0 for each class."""
    if not isinstance(value, list | tuple) or len(value) != classes:
        return False
    return all(isinstance(flag, int | float) and flag in (0, 1) for flag in value)


def _numbers_are_places(labels: Sequence[str]) -> bool:
    """Whether 1 can only mean the second class.

    Where names are or begin with numbers ("1 star" to "5 stars"), 1 must not be taken for the second class.
    """
    for place, label in enumerate(labels):
        number = re.match(r"\s*[+-]?\d+", label)
        if number is not None and int(number[0]) != place:
            return False
    return True


def _folded(name: str) -> str:
    """Return a name in lower case, with one sign for spaces, hyphens and underscores between its words."""
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def _spellings(value: Any) -> Iterator[str]:
    """Yield the texts by which a class is looked for, the nearest first."""
    text = str(value).strip()
    yield text
    yield _folded(text)
    if text.casefold() in _TRUTH_VALUES:
        yield _TRUTH_VALUES[text.casefold()]
    made_up = _MADE_UP_NAME.fullmatch(text)
    if made_up is not None:
        yield made_up[1]
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return
    if number.is_integer():  # True, 1.0 and "1.0" are all 1.
        yield str(int(number))


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


def _is_set(value: Any, where: str) -> bool:
    if isinstance(value, bool | str):
        value = _TRUTH_VALUES.get(str(value).strip().casefold(), value)
    flag = parse_value(value, where)
    if flag not in (0, 1):
        raise CorpusError(f"{where} has the label {value!r}: give 1 where the row has the class, else 0.")
    return flag == 1


def is_missing(value: Any) -> bool:
    """Whether a label is absent: null, empty text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return value is None
