"""Thresholds of classes, where a row may have several."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.task import Task

DECIDED = 0.5
"""Probability from which a row is given a class, where no threshold was chosen."""


def given_classes(probabilities: ArrayLike, task: Task) -> NDArray[np.bool_]:
    """Return which classes each row is given, `[rows, classes]`: those whose probability reaches their threshold.

    Args:
        probabilities: Of each row and class, `[rows, classes]`.
        task: Has the thresholds; 0.5 without.
    """
    thresholds = np.asarray(task.thresholds or DECIDED)
    return np.asarray(np.asarray(probabilities) >= thresholds)


def choose_thresholds(probabilities: ArrayLike, rows: Sequence[LabelledRow]) -> tuple[float, ...]:
    """Return for each class the threshold with the best F1 on labelled rows; of equals the one nearest to 0.5.

    Thresholds lie half way between neighbouring probabilities. A class that no row has keeps 0.5.

    Args:
        probabilities: Of each row and class, `[rows, classes]`.
        rows: With their labels. What is scored by the thresholds has to be other rows.
    """
    scores = np.asarray(probabilities, dtype=np.float64)
    has_class = np.array([row.label for row in rows]) == 1
    classes = range(scores.shape[1])
    return tuple(_best_threshold(scores[:, number], has_class[:, number]) for number in classes)


def _best_threshold(scores: NDArray[np.float64], has_class: NDArray[np.bool_]) -> float:
    """Return the threshold of one class.

    Args:
        scores: Its probability, `[rows]`.
        has_class: Whether each row has it, `[rows]`.
    """
    if not has_class.any():
        return DECIDED
    probabilities = np.unique(scores)
    half_way = (probabilities[1:] + probabilities[:-1]) / 2
    thresholds = np.sort(np.append(half_way, DECIDED))

    # F1 of every threshold at once. Rows in ascending order of their scores: a threshold gives the class to all rows
    # behind its place, and misses those before it that have the class.
    order = np.argsort(scores, kind="stable")
    rows_below = np.searchsorted(scores[order], thresholds)
    labelled = has_class.sum()
    labelled_before = np.concatenate([[0], np.cumsum(has_class[order])])
    hits = labelled - labelled_before[rows_below]
    predicted = len(scores) - rows_below
    f1 = 2 * hits / (predicted + labelled)

    best = thresholds[f1 == f1.max()]
    return float(best[np.abs(best - DECIDED).argmin()])
