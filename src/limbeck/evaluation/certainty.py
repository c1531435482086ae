"""The certainty of a score: its 95 % interval over the rows that it is of, and whether one answer is given to all."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from limbeck.core import intervals
from limbeck.core.kinds import KINDS
from limbeck.evaluation.metrics import METRICS, THRESHOLD, given_classes, score_answers
from limbeck.evaluation.tasks import Predictions, Task, TaskRow

_OF_SHARES, _OF_CORRELATIONS = ("accuracy", "exact_match"), ("pearson", "spearman")
_RESAMPLED = ("f1", "matthews", "micro_f1", "macro_f1")


def interval_of(
    metric: str, value: float, task: Task, rows: Sequence[TaskRow], predictions: Predictions
) -> intervals.Interval | None:
    """Return the interval of a score over rows; None of a metric whose rows do not count alone.

    Wilson's of shares, Fisher's of correlations, and the bootstrap of rows for F1 and Matthews' coefficient. The F1 of
    answers is a mean over rows. Words of a sentence and documents of a query belong together: they have none.

    Args:
        metric: Its name.
        value: The score.
        task: Whose rows these are.
        rows: With their labels.
        predictions: As `limbeck.evaluation.metrics.score` takes them.
    """
    kind = KINDS[task.kind]
    if kind.of_words or kind.has_queries:
        return None
    if metric in _OF_SHARES:
        return intervals.of_share(value, len(rows))
    if metric in _OF_CORRELATIONS:
        return intervals.of_correlation(value, len(rows), ranked=metric == "spearman")
    if isinstance(predictions, Mapping):
        return _of_answers(predictions, rows, task) if metric == "f1_answer" else None
    if metric not in _RESAMPLED:
        return None
    given: Sequence[Any] = predictions
    return intervals.of_resampled(
        lambda chosen: METRICS[metric]([given[row] for row in chosen], [rows[row] for row in chosen], task), len(rows)
    )


def _of_answers(predictions: Mapping[str, Any], rows: Sequence[TaskRow], task: Task) -> intervals.Interval:
    found = score_answers(predictions, rows, task).f1
    if not task.answerable_only:
        odds = [predictions[row.id].null_odds if row.id in predictions else -np.inf for row in rows]
        found = np.where(np.array(odds) > THRESHOLD, [not row.answers for row in rows], found)
    return intervals.of_many(found.tolist())


def intervals_of(
    scores: Mapping[str, float], task: Task, rows: Sequence[TaskRow], predictions: Predictions
) -> dict[str, list[float]]:
    """Return the intervals of a split's scores by the task's metrics, as far as they have one."""
    found = {name: interval_of(name, scores[name], task, rows, predictions) for name in task.metrics if name in scores}
    return {name: list(ends) for name, ends in found.items() if ends is not None}


def only_answer(task: Task, predictions: Predictions) -> str | None:
    """Return the one answer that all rows are given, in words; None where there are several, or one row."""
    kind = KINDS[task.kind]
    if isinstance(predictions, Mapping) or kind.of_tokens or kind.has_queries or len(predictions) < 2:
        return None
    given: Sequence[Any] = predictions
    if kind.has_several:
        flags = np.unique(given_classes(np.asarray(given, dtype=np.float64), task), axis=0)
        if len(flags) > 1:
            return None
        return ", ".join(name for name, flag in zip(task.labels, flags[0], strict=True) if flag) or "no class"
    if len(values := set(given)) > 1:
        return None
    [value] = values
    return task.labels[int(value)] if kind.has_classes else f"{value:g}"
