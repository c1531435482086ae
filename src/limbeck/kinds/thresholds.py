"""Thresholds of classes, where a row may have several."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limbeck.corpus.labelled import LabelledRow
from limbeck.kinds.task import Task

DECIDED = 0.5
"""Probability from which a row is given a class, where no threshold was chosen."""


def given_classes(probabilities: ArrayLike, task: Task) -> NDArray[np.bool_]:
    """Return which classes each row is given, `[rows, classes]`: those whose probability reaches their threshold.

    Args:
        probabilities: Of each row and class, `[rows, classes]`.
        task: Has the thresholds; 0.5 without.
    """
    return np.asarray(np.asarray(probabilities) >= np.asarray(task.thresholds or DECIDED))


def choose_thresholds(probabilities: ArrayLike, rows: Sequence[LabelledRow]) -> tuple[float, ...]:
    """Return for each class the threshold with the best F1 on labelled rows; of equals the one nearest to 0.5.

    Thresholds lie half way between neighbouring probabilities. A class that no row has keeps 0.5.

    Args:
        probabilities: Of each row and class, `[rows, classes]`.
        rows: With their labels. What is scored by the thresholds has to be other rows.
    """
    scores = np.asarray(probabilities, dtype=np.float64)
    has_class = np.array([row.label for row in rows]) == 1
    return tuple(_best_threshold(scores[:, number], has_class[:, number]) for number in range(scores.shape[1]))


def _best_threshold(scores: NDArray[np.float64], has_class: NDArray[np.bool_]) -> float:
    """Return the threshold of one class.

    Args:
        scores: Its probability, `[rows]`.
        has_class: Whether each row has it, `[rows]`.
    """
    if not has_class.any():
        return DECIDED
    values = np.unique(scores)
    thresholds = np.sort(np.append((values[1:] + values[:-1]) / 2, DECIDED))

    # F1 of every threshold at once, by the rows in the order of their scores.
    order = np.argsort(scores, kind="stable")
    left_out = np.searchsorted(scores[order], thresholds)
    missed = np.concatenate([[0], np.cumsum(has_class[order])])[left_out]
    right = has_class.sum() - missed
    f1 = 2 * right / (len(scores) - left_out + has_class.sum())

    best = thresholds[f1 == f1.max()]
    return float(best[np.abs(best - DECIDED).argmin()])
