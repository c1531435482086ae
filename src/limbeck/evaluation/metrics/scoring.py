"""`METRICS` and `score`: predictions and rows to the numbers that tables print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from limbeck.core.registry import Registry
from limbeck.errors import CorpusError
from limbeck.evaluation.metrics.no_answer import no_answer_scores, thresholded
from limbeck.evaluation.tasks.predictions import AnswerPrediction, Predictions
from limbeck.evaluation.tasks.task import Task, TaskRow

Metric: TypeAlias = Callable[[Predictions, Sequence[TaskRow], Task], float]

METRICS: Registry[Metric] = Registry("metric")
"""Name to metric: 0 to 1; -1 to 1 for `matthews`, `pearson` and `spearman`."""


def score(task: Task, split: str, rows: Sequence[TaskRow], predictions: Predictions) -> dict[str, float]:
    """Score the predictions of a split.

    Args:
        task: Whose split it is.
        split: Its name, for metrics of its own.
        rows: With labels or gold answers.
        predictions: One a row, in order; answers by row id.

    Returns:
        Metric to value, the main metric first. A correlation with predictions or labels that are all equal is 0. Where
        questions may have no answer, also what `no_answer_scores` returns.

    Raises:
        CorpusError: if the split has no rows, or none of its labels is known.
        ValueError: if there are not as many predictions as rows.
    """
    if not rows:
        raise CorpusError(f"The split '{split}' of {task.title} has no rows to score.")
    facts = task.splits.get(split)
    names = (facts.metrics if facts is not None else ()) or task.metrics
    answers = task.kind == "question_answering"
    if (facts is not None and not facts.labelled) or (not answers and any(row.label is None for row in rows)):
        raise CorpusError(
            f"The split '{split}' of {task.title} is unlabelled: its predictions can be written, but not scored."
        )
    if isinstance(predictions, Mapping) != answers:
        raise ValueError(f"predictions of {task.title} must be {'answers by row id' if answers else 'one a row'}")
    if not answers and len(predictions) != len(rows):
        raise ValueError(f"{len(predictions)} predictions for {len(rows)} rows of {task.title}")
    scores = {name: METRICS[name](predictions, rows, task) for name in names}
    if answers and not task.answerable_only:
        scores |= no_answer_scores(cast(Mapping[str, AnswerPrediction], predictions), rows, task)
    return scores


def _accuracy(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    return float(accuracy_score(_labels(rows), _values(predictions)))


def _f1(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    """Of the second of two classes, as for MRPC and QQP; the mean over all where there are more."""
    average = "binary" if len(task.labels) == 2 else "macro"
    return float(f1_score(_labels(rows), _values(predictions), average=average, zero_division=0.0))


def _matthews(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    return float(matthews_corrcoef(_labels(rows), _values(predictions)))


def _pearson(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    return _correlation(pearsonr, predictions, rows)


def _spearman(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    return _correlation(spearmanr, predictions, rows)


def _exact_match(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    return float(thresholded(cast(Mapping[str, AnswerPrediction], predictions), rows, task).exact.mean())


def _f1_answer(predictions: Predictions, rows: Sequence[TaskRow], task: Task) -> float:
    return float(thresholded(cast(Mapping[str, AnswerPrediction], predictions), rows, task).f1.mean())


def _correlation(function: Callable[..., object], predictions: Predictions, rows: Sequence[TaskRow]) -> float:
    ours, theirs = _values(predictions).astype(np.float64), _labels(rows).astype(np.float64)
    if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return 0.0
    return float(function(ours, theirs).statistic)  # type: ignore[attr-defined]


def _labels(rows: Sequence[TaskRow]) -> NDArray[np.generic]:
    return np.array([row.label for row in rows])


def _values(predictions: Predictions) -> NDArray[np.generic]:
    return np.asarray(predictions)


for _name, _metric in (
    ("accuracy", _accuracy),
    ("f1", _f1),
    ("matthews", _matthews),
    ("pearson", _pearson),
    ("spearman", _spearman),
    ("exact_match", _exact_match),
    ("f1_answer", _f1_answer),
):
    METRICS.register(_name, _metric)
