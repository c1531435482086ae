"""What a row's label column says: a class, a value, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from limbeck.corpus.labelled import ClassNumbers, is_missing, parse_value
from limbeck.corpus.readers import PlacedRow
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.task import Task

# Spellings of XNLI's translated training files.
_OTHER_SPELLINGS = {"contradictory": "contradiction"}
UNDECIDED = "-"
"""In place of a class on which the annotators did not agree; the sources do not count such rows."""

LabelReader = Callable[[PlacedRow, str], int | float | None]


def label_reader(task: Task) -> LabelReader:
    """Return the function that reads the label in a column of a row.

    It gives None where the annotators did not agree on a class, and raises a CorpusError for a row without a label, a
    class that is none of the task's, or a value that is not a finite number.

    Args:
        task: Names the classes, in the order of their numbers.
    """
    if task.kind != "classification":
        return _value
    numbers = ClassNumbers(task.labels)

    def read_class(row: PlacedRow, column: str) -> int | None:
        value = row.values[column]
        if value == UNDECIDED and UNDECIDED not in task.labels:
            return None
        if is_missing(value) or (value in (-1, "-1") and value not in numbers):
            raise _unlabelled(row, column)
        try:
            spelt = _OTHER_SPELLINGS.get(value, value) if isinstance(value, str) else value
            return numbers.number(spelt, row.where, row.class_names.get(column, ()))
        except CorpusError:
            raise CorpusError(
                f"{row.where} has the label {value!r}, which is none of {task.title}'s ({', '.join(task.labels[:20])}) "
                f"nor a number from 0 to {len(task.labels) - 1}."
            ) from None

    return read_class


def _value(row: PlacedRow, column: str) -> float:
    value: Any = row.values[column]
    if is_missing(value):
        raise _unlabelled(row, column)
    return parse_value(value, row.where)


def _unlabelled(row: PlacedRow, column: str) -> CorpusError:
    return CorpusError(
        f"{row.where} is unlabelled (its {column} is {row.values[column]!r}), and a labelled split is asked for."
    )
