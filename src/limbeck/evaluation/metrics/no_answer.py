"""SQuAD 2.0's scores of questions that may have no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from limbeck.evaluation.metrics.answer_scores import AnswerScores, score_answers
from limbeck.evaluation.tasks.predictions import AnswerPrediction
from limbeck.evaluation.tasks.task import Task, TaskRow

THRESHOLD = 0.0
"""Null odds above it mean no answer, where no better threshold has been searched."""


def threshold_scores(
    scores: AnswerScores, odds: NDArray[np.float64], answerable: NDArray[np.bool_], threshold: float
) -> AnswerScores:
    """Return the scores of answers that are empty where the null odds are above a threshold.

    Args:
        scores: Of the answers that are never empty.
        odds: Null odds, `[rows]`.
        answerable: Whether the question has an answer, `[rows]`.
        threshold: Of the null odds.
    """
    emptied = odds > threshold
    return AnswerScores(*(np.where(emptied, ~answerable, part) for part in scores))


def best_threshold(
    scores: NDArray[np.float64], odds: NDArray[np.float64], answerable: NDArray[np.bool_], empty: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the best mean score that a threshold can give, and the threshold.

    Questions are answered one by one, the surest first: an answer to a question that has one adds its score, an
    answer to one that has none takes 1 away. The threshold is 0 where answering nothing is the best.

    Args:
        scores: Of the answers that are never empty, `[rows]`.
        odds: Null odds, `[rows]`.
        answerable: Whether the question has an answer, `[rows]`.
        empty: Whether the predicted text is empty even so, `[rows]`.

    Source: the search in SQuAD 2.0's evaluation script (arXiv 1806.03822).
    """
    order = np.argsort(odds, kind="stable")
    changes = np.where(answerable, scores, np.where(empty, 0.0, -1.0))[order]
    nothing = float((~answerable).sum())
    reached = nothing + np.cumsum(changes)
    best = int(reached.argmax())
    if reached[best] <= nothing:
        return nothing / len(scores), THRESHOLD
    return float(reached[best]) / len(scores), float(odds[order[best]])


def no_answer_scores(
    predictions: Mapping[str, AnswerPrediction], rows: Sequence[TaskRow], task: Task
) -> dict[str, float]:
    """Return what SQuAD 2.0 reports beside exact match and F1.

    Args:
        predictions: Row id to answer and null odds.
        rows: With their gold answers; a row without any is a question without an answer.
        task: One whose questions may have no answer.

    Returns:
        `best_exact`, `best_f1` and their thresholds; `has_answer_exact`, `has_answer_f1`, `no_answer_exact`,
        `no_answer_f1` at a threshold of 0, the parts that have rows. All within 0 and 1, save the thresholds.
    """
    scores, odds, answerable = _arrays(predictions, rows, task)
    empty = np.array([not (row.id in predictions and predictions[row.id].text) for row in rows])
    found: dict[str, float] = {}
    for name, values in (("exact", scores.exact), ("f1", scores.f1)):
        found[f"best_{name}"], found[f"best_{name}_threshold"] = best_threshold(values, odds, answerable, empty)
    at_zero = threshold_scores(scores, odds, answerable, THRESHOLD)
    for part, chosen in (("has_answer", answerable), ("no_answer", ~answerable)):
        if chosen.any():
            found[f"{part}_exact"] = float(at_zero.exact[chosen].mean())
            found[f"{part}_f1"] = float(at_zero.f1[chosen].mean())
    return found


def thresholded(predictions: Mapping[str, AnswerPrediction], rows: Sequence[TaskRow], task: Task) -> AnswerScores:
    """Return the scores of the answers, empty above a threshold of 0 where questions may have no answer."""
    if task.answerable_only:
        return score_answers(predictions, rows, task)
    return threshold_scores(*_arrays(predictions, rows, task), THRESHOLD)


def _arrays(
    predictions: Mapping[str, AnswerPrediction], rows: Sequence[TaskRow], task: Task
) -> tuple[AnswerScores, NDArray[np.float64], NDArray[np.bool_]]:
    odds = np.array([predictions[row.id].null_odds if row.id in predictions else -np.inf for row in rows])
    answerable = np.array([bool(row.answers) for row in rows])
    return score_answers(predictions, rows, task), odds, answerable
