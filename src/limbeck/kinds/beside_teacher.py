"""A student beside its teacher on the rows of a task: figures of each class, and the rows on which they disagree."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limbeck.core.records import LabelFigures


@dataclass(frozen=True)
class Disagreements:
    """How far student and teacher are apart on each row.

    Attributes:
        distances: The distance of each row, `[rows]`.
        differ: Whether the answers differ, `[rows]`.
        student: The student's answers in words.
        teacher: The teacher's answers in words.
        are_counted: Whether the number of rows that differ is worth showing. It is not for numbers, which nearly always
            differ a little.
    """

    distances: NDArray[np.float64]
    differ: NDArray[np.bool_]
    student: Sequence[str]
    teacher: Sequence[str]
    are_counted: bool = True


def label_figures(label: str, rows: int, f1_of_models: Sequence[float]) -> LabelFigures:
    """Return the figures of one class.

    Args:
        label: Name of the class.
        rows: Number of rows (or words) with this label.
        f1_of_models: The F1 of the student, and of the teacher where it was scored.
    """
    student, *others = f1_of_models
    teacher = others[0] if others else None
    return LabelFigures(label=label, rows=rows, student=student, teacher=teacher)


@dataclass(frozen=True)
class ClassFigures:
    """Figures of each class.

    Attributes:
        by_label: F1 of student and teacher on each class.
        labels: Class names of the confusion; empty without one.
        confusion: Rows of each class by the class that the student gives them, `[classes, classes]`.
    """

    by_label: list[LabelFigures]
    labels: list[str]
    confusion: list[list[int]]
