"""Labels as data sets write them: the numbers of classes by their names, values, and labels that are missing.

A *class number* counts the classes from 0, as the outputs of the teacher do. *Flags* are a 1 or 0 for each class, the
label of a row that may have several classes.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from limbeck.core.kinds import are_made_up
from limbeck.errors import CorpusError

TEACHERS_CLASSES = "the teacher's classes"
_SHOWN_CLASSES = 20
_TRUTH_VALUES = {"false": "0", "true": "1"}
"""Truth values as tables write them, and the numbers that they stand for."""
_CLASS_NUMBER = re.compile(r"\d{1,9}")
_FRACTION = re.compile(r"\d{1,3}\.\d{0,3}")
_MADE_UP_NAME = re.compile(r"LABEL_(\d+)", re.IGNORECASE)
_SEPARATORS = "|;,"
"""Characters between several classes in a text. The text is split at the first of these that it contains."""
_SPACES_AND_QUOTES = " '\""


ListReading: TypeAlias = Literal["numbers", "flags"]
"""What the numbers in a list are: class numbers of the classes that a row has, or flags, a 1 or 0 for each class."""
MOST_AMBIGUOUS_CLASSES = 2
"""Most classes with which a list can be read both ways, such as `[0, 1]`.

With three classes or more, flags have a 0 or a 1 twice, which class numbers never have.
"""


class ClassNumbers:
    """Finds the number of a class by its name, in upper or lower case, or by the number itself.

    A data set may have names for the class numbers in its rows, as parquet files and Hub data sets do. These names
    then decide, since data set and teacher may number the classes differently, also where the names are numbers: "1"
    is the class "1". Where some of these names are no class, and the data set or the teacher has nothing but numbers
    from 0, or names that `transformers` makes up (`LABEL_0`), a number stands for itself.

    Args:
        labels: Class names in the order of their numbers.
        owner: Who has these classes, for messages.
        lists: What the numbers in a list are; None where every list is judged by itself.

    Attributes:
        lists: The same.

    Raises:
        CorpusError: if there are no names.
    """

    def __init__(
        self, labels: Sequence[str], owner: str = TEACHERS_CLASSES, *, lists: ListReading | None = None
    ) -> None:
        self.lists = lists
        if not labels:
            raise CorpusError(
                "Classification needs the names of the classes, but there are none: give 'labels', in the order "
                "of the teacher's id2label."
            )
        self._owner = owner
        self._labels = tuple(labels)
        # The number of a class by each spelling. Later entries take precedence: folded names that only one class has,
        # then the names as they are, then the numbers.
        self._number_of_spelling: dict[str, int] = {}
        folded_names = [_folded(label) for label in labels]
        self._ambiguous_names = {name for name in folded_names if folded_names.count(name) > 1}
        for number, folded_name in enumerate(folded_names):
            if folded_name not in self._ambiguous_names:
                self._number_of_spelling[folded_name] = number
        for number, label in enumerate(labels):
            self._number_of_spelling[label] = number
        self._takes_numbers = _numbers_are_places(labels)
        if self._takes_numbers:
            for number in range(len(labels)):
                self._number_of_spelling[str(number)] = number
        # The results of `_is_numbered_by` so far, by the names of a data set. Every row of a source has the same names.
        self._is_numbered_by_names: dict[tuple[str, ...], bool] = {}

    def number(self, value: Any, where: str, names: Sequence[str] = ()) -> int:
        """Return the number of the class that a row is labelled with.

        Args:
            value: Name or number of the class, as it was read.
            where: Place of the row, for messages.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if the value is no name and no number of a class.
        """
        has_names = self._is_numbered_by(tuple(names))
        if has_names and isinstance(value, int):
            # A number that the data set has no name for is no class, even where the teacher has so many classes.
            if not 0 <= value < len(names):
                raise self._no_class_error(value, where, has_names=True)
            value = names[value]
        class_number = self._look_up(value)
        if class_number is None:
            raise self._no_class_error(value, where, has_names=has_names)
        return class_number

    def flags(self, value: Any, where: str, names: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the flags of a row that may have several classes: for each class 1 where the row has it, else 0.

        Args:
            value: Names or numbers of the row's classes, in a list, or in a text with `|`, `;` or `,` between them. An
                empty list or text stands for no class. A list of flags is understood too, see `reading_of_lists`.
            where: Place of the row, for messages.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if the value names something that is no class or one class twice, or if a list can be read both
                ways.
        """
        if not self._are_names(value):
            value = _listed(value)
        if _is_list_of_flags(value, len(self._labels)):
            # The list may also hold class numbers: `[0, 1]` can be the second class, or both.
            reading = self._reading_of(value, names)
            if reading == "flags":
                return tuple(int(flag) for flag in value)
            if reading is None:
                raise CorpusError(
                    f"{where} has the label {value!r}, which may be the numbers of classes, or a 1 or 0 for each "
                    "class: set label_lists to 'numbers' or to 'flags'."
                )
        elif self.lists == "flags" and _is_list_of_numbers(value):
            raise CorpusError(
                f"{where} has the label {value!r}, but 'label_lists: flags' needs a list with a 1 or 0 for each of "
                f"the {len(self._labels)} classes: change the label, or set label_lists to 'numbers'."
            )
        # From here on the value names classes, or gives their numbers.
        numbers = [self.number(part, where, names) for part in self._classes_in(value)]
        if len(set(numbers)) < len(numbers):
            raise CorpusError(
                f"{where} has the label {value!r}, which names a class twice: name each class once, or give a "
                "column of 0 and 1 for each class (label_columns)."
            )
        return self._flags(numbers)

    def flags_of(self, values: Mapping[str, Any], where: str) -> tuple[int, ...]:
        """Return the flags of a row that has a column of 0 and 1 for each class.

        Args:
            values: The values of these columns, by the name of the column, which is the name of its class. Where the
                classes have only the names that `transformers` makes up (`LABEL_0`), the columns have the order of the
                classes, whatever their names.
            where: Place of the row, for messages.

        Raises:
            CorpusError: if a class has no column, a column has no class, or a value is not 0 or 1.
        """
        are_unnamed = list(self._labels) == [f"LABEL_{number}" for number in range(len(self._labels))]
        columns_are_in_order = are_unnamed and len(values) == len(self._labels)
        class_of_column: dict[str, int] = {}
        for place, name in enumerate(values):
            if columns_are_in_order:
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
        """Whether a value is the name of a class, in the same upper and lower case."""
        return str(value).strip() in self._labels

    def _look_up(self, value: Any) -> int | None:
        """Return the number of the class that a value spells; None where no class is spelt so."""
        as_written = str(value).strip()
        for spelling in _spellings(value):
            # Of the classes "US" and "us", "Us" is neither.
            fits_several = spelling in self._ambiguous_names and spelling != as_written
            if spelling in self._number_of_spelling and not fits_several:
                return self._number_of_spelling[spelling]
        return None

    def _is_numbered_by(self, names: tuple[str, ...]) -> bool:
        """Whether a number in a data set with these names stands for its name there, and not for itself."""
        if not names:
            return False
        if names not in self._is_numbered_by_names:
            # Either all numbers stand for their names or none: a number for its name and another one for itself could
            # be the same class.
            all_are_classes = all(self._look_up(name) is not None for name in names)
            says_no_more_than_numbers = are_made_up(names) or are_made_up(self._labels)
            self._is_numbered_by_names[names] = all_are_classes or not says_no_more_than_numbers
        return self._is_numbered_by_names[names]

    def _no_class_error(self, value: Any, where: str, *, has_names: bool) -> CorpusError:
        """Return the error for a label that is no class.

        Args:
            value: The label, or the name that the data set has for its number.
            where: Place of the row.
            has_names: Whether numbers of the data set stand for its names; then the message suggests no numbers.
        """
        known = ", ".join(self._labels[:_SHOWN_CLASSES])
        if len(self._labels) > _SHOWN_CLASSES:
            known += ", …"
        problem = f"{where} has the label {value!r}, which is not one of {self._owner} ({known})"
        if self._takes_numbers and not has_names:
            problem += f" or a number from 0 to {len(self._labels) - 1}"
        # A number does not look like a misspelt name of a class, so the message does not advise to rename a class.
        is_number = re.fullmatch(r"[+-]?[\d.]+", str(value).strip())
        way_out = "; correct the label, or the classes of the task."
        if self._owner == TEACHERS_CLASSES and not is_number:
            way_out = f": correct the label, or rename the classes (teacher.classes: {{{self._labels[0]}: …}})."
        return CorpusError(f"{problem}{way_out}")

    def _reading_of(self, value: Any, names: Sequence[str]) -> ListReading | None:
        """Return what the numbers in a list are; None where that is not known.

        Args:
            value: The list.
            names: Names that the data set has for its numbers. A data set with such names means the classes by numbers.
        """
        if names:
            return "numbers"
        if self.lists is not None:
            return self.lists
        return reading_of_lists([value], len(self._labels))

    def _classes_in(self, value: Any) -> Sequence[Any]:
        """Return the names or numbers of classes in a text or a list; of a single number, the number itself."""
        if isinstance(value, str):
            return self._split(value)
        if isinstance(value, Sequence):
            return value
        return [value]

    def _flags(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the flags of a row with the classes of some numbers."""
        return tuple(int(number in numbers) for number in range(len(self._labels)))

    def _split(self, text: str) -> list[str]:
        """Split text such as `joy|anger` or `['joy', 'anger']` into the names of classes."""
        # The name of a single class may contain a separator.
        if text in self:
            return [text]
        return _parts_of(text)

    def _are_names(self, value: Any) -> bool:
        """Whether a text or a list of texts has names of classes alone, which may look like numbers."""
        if value in self:
            return True
        if isinstance(value, str) and _numbers_in_brackets(value) is None:
            value = _parts_of(value)
        if not isinstance(value, list | tuple) or not value:
            return False
        return all(isinstance(part, str) and part in self for part in value)


def reading_of_lists(values: Iterable[Any], classes: int) -> ListReading | None:
    """Return what the numbers in the lists of a column are; None where all lists can be read both ways.

    A list of another length than the number of classes, or with a number above 1, has class numbers, and decides for
    the whole column. Otherwise truth values, fractions such as 1.0 and a number that a list has twice show flags.

    Args:
        values: Values of the column; those that are no lists are passed over.
        classes: Number of the classes.
    """
    reading: ListReading | None = None
    for value in map(_listed, values):
        if not _is_list_of_numbers(value):
            continue
        if not _is_list_of_flags(value, classes):
            return "numbers"
        has_truth_values = any(isinstance(flag, bool | float) for flag in value)
        has_number_twice = len(set(value)) < len(value)
        if has_truth_values or has_number_twice:
            reading = "flags"
    return reading


def parse_value(value: Any, where: str) -> float:
    """Return the number that a row is labelled with, such as a similarity.

    Args:
        value: A number, or text that spells one.
        where: Place of the row, for messages.

    Raises:
        CorpusError: if the value is not a finite number.
    """
    number = math.nan
    if not isinstance(value, bool):  # Python would take True for 1.
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise CorpusError(f"{where} has the label {value!r}, which is not a finite number.")
    return number


def number_of_truth(value: Any) -> Any:
    """Return the number, as text, for a truth value or a text that spells one (true is 1); other values as is."""
    if isinstance(value, bool | str):
        return _TRUTH_VALUES.get(str(value).strip().casefold(), value)
    return value


def is_missing(value: Any) -> bool:
    """Whether a label is absent: null, empty text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return value is None


def _parts_of(text: str) -> list[str]:
    """Return the parts of a text such as `joy|anger` or `['joy', 'anger']`, without quotation marks."""
    names = text.strip()
    if names.startswith("[") and names.endswith("]"):  # A list that was written into a table.
        names = names[1:-1]
    parts = names.split(_separator_in(names))
    stripped_parts = [part.strip(_SPACES_AND_QUOTES) for part in parts]
    return [part for part in stripped_parts if part]


def _separator_in(names: str) -> str:
    """Return the first of `_SEPARATORS` that a text contains; a comma, which splits nothing then, if it has none."""
    for separator in _SEPARATORS:
        if separator in names:
            return separator
    return ","


def _listed(value: Any) -> Any:
    """Return the numbers that a text or a list of texts spells, as a list; any other value unchanged.

    A text is `[0, 1]` or `[True, False]` with brackets, or `0|1`, `1.0|0.0` or `True|False` without. A list is
    `["0", "True"]`.
    """
    items = value
    if isinstance(value, str):
        numbers = _numbers_in_brackets(value)
        if numbers is not None:
            return numbers
        items = _parts_of(value)
    if not isinstance(items, list | tuple) or not items:
        return value
    numbers = _numbers_of(items)
    # Some item is no number, such as the name of a class.
    if numbers is None:
        return value
    return numbers


def _numbers_in_brackets(text: str) -> list[int | float | bool] | None:
    """Return the numbers of a text such as `[0, 1]` and `[True, False]`; None of any other text."""
    bare = text.strip()
    if not (bare.startswith("[") and bare.endswith("]")):
        return None
    content = bare[1:-1].strip()
    return _numbers_of(content.split(",")) if content else []


def _numbers_of(parts: Sequence[Any]) -> list[int | float | bool] | None:
    """Return the numbers and truth values that texts spell; None where one of them is anything else."""
    numbers: list[int | float | bool] = []
    for part in parts:
        if not isinstance(part, str):
            return None
        word = part.strip().casefold()
        if word in _TRUTH_VALUES:
            numbers.append(word == "true")
        elif _CLASS_NUMBER.fullmatch(word):
            numbers.append(int(word))
        elif _FRACTION.fullmatch(word):
            numbers.append(float(word))
        else:
            return None
    return numbers


def _is_list_of_numbers(value: Any) -> bool:
    """Whether a value is a list of numbers or truth values; an empty list is, too."""
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(number, int | float) for number in value)


def _is_list_of_flags(value: Any, classes: int) -> bool:
    """Whether a value is a list with a 1 or 0 for each class, and so may be flags."""
    if not isinstance(value, list | tuple) or len(value) != classes:
        return False
    return all(isinstance(flag, int | float) and flag in (0, 1) for flag in value)


def _numbers_are_places(labels: Sequence[str]) -> bool:
    """Whether a number can stand for the class in its place, so that 1 means the second class.

    It cannot where a name begins with another number: of "1 star" to "5 stars", 1 would mean "2 stars".
    """
    for place, label in enumerate(labels):
        number = re.match(r"\s*[+-]?\d+", label)
        if number is not None and int(number[0]) != place:
            return False
    return True


def _folded(name: str) -> str:
    """Return a name in lower case, with an underscore for spaces, hyphens and underscores between its words."""
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def _spellings(value: Any) -> Iterator[str]:
    """Yield the spellings by which a class is looked up, the most literal first: `LABEL_1`, `label_1`, `1`."""
    text = str(value).strip()
    yield text
    yield _folded(text)
    if text.casefold() in _TRUTH_VALUES:
        yield _TRUTH_VALUES[text.casefold()]
    made_up = _MADE_UP_NAME.fullmatch(text)
    if made_up is not None:
        number_in_name = made_up[1]
        yield number_in_name
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return
    if number.is_integer():  # True, 1.0 and "1.0" are all 1.
        yield str(int(number))


def _is_set(value: Any, where: str) -> bool:
    """Whether the value in the column of a class says that the row has the class: 1, true, or a text of these."""
    flag = parse_value(number_of_truth(value), where)
    if flag not in (0, 1):
        raise CorpusError(f"{where} has the label {value!r}: give 1 where the row has the class, else 0.")
    return flag == 1
