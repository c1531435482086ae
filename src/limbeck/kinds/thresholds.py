"""Thresholds of classes, where a row may have several: a row is given each class whose probability reaches it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds import class_scores
from limbeck.kinds.task import Task

DECIDED = 0.5
"""Probability from which a row is given a class, where no threshold was chosen."""


def given_classes(probabilities: ArrayLike, task: Task) -> NDArray[np.bool_]:
    """Return which classes each row is given, `[rows, classes]`: those whose probability reaches their threshold.

    Args:
        probabilities: The probability of each class in each row, `[rows, classes]`.
        task: The task, with a threshold for each class; without any, 0.5 is the threshold of all.
    """
    thresholds = np.asarray(task.thresholds or DECIDED)
    return np.asarray(np.asarray(probabilities) >= thresholds)


def choose_thresholds(probabilities: ArrayLike, rows: Sequence[LabelledRow]) -> tuple[float, ...]:
    """Return for each class the threshold with the best F1 on labelled rows; of equals the one nearest to 0.5.

    Thresholds lie half way between neighbouring probabilities. A class that no row has keeps 0.5.

    Args:
        probabilities: The probability of each class in each row, `[rows, classes]`.
        rows: The rows with their labels. What is scored by the thresholds has to be other rows.
    """
    by_class = np.asarray(probabilities, dtype=np.float64).T
    has_class = class_scores.labels_of(rows).T == 1
    thresholds = []
    for class_probabilities, rows_with_class in zip(by_class, has_class, strict=True):
        thresholds.append(_best_threshold(class_probabilities, rows_with_class))
    return tuple(thresholds)


def _best_threshold(probabilities: NDArray[np.float64], has_class: NDArray[np.bool_]) -> float:
    """Return the threshold of one class with the best F1.

    Of several it is the one nearest to `DECIDED`, the threshold that is used unless another is chosen. A class that no
    row has gets `DECIDED` itself.

    Args:
        probabilities: The probability of the class in each row, `[rows]`.
        has_class: Whether each row has the class, `[rows]`.
    """
    if not has_class.any():
        return DECIDED
    distinct = np.unique(probabilities)  # In ascending order.
    half_way = (distinct[1:] + distinct[:-1]) / 2
    thresholds = np.sort(np.append(half_way, DECIDED))

    # The F1 of all thresholds at once. With the rows in ascending order of their probabilities, a threshold splits them
    # in two: rows below it are not given the class, the others are.
    order = np.argsort(probabilities, kind="stable")
    rows_below = np.searchsorted(probabilities[order], thresholds)  # [thresholds]
    labelled = has_class.sum()
    labelled_in_first_rows = np.concatenate([[0], np.cumsum(has_class[order])])  # [rows + 1], from 0 rows to all.
    hits = labelled - labelled_in_first_rows[rows_below]
    predicted = len(probabilities) - rows_below
    f1 = 2 * hits / (predicted + labelled)

    # Several thresholds may have the best F1.
    best = thresholds[f1 == f1.max()]
    nearest = np.abs(best - DECIDED).argmin()
    return float(best[nearest])
