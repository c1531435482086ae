"""Scores of a split: the metrics of its task, how certain they are, and whether one answer is given to all rows."""

import math
from collections.abc import Mapping, Sequence

from limbeck.core.kinds import KINDS as FACTS
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Predictions, Task

METRIC_NAMES = frozenset(name for facts in FACTS.values() for name in facts.metrics)
"""Names of the metrics of the package's kinds: 0 to 1; -1 to 1 for `matthews`, `pearson` and `spearman`."""


def score(task: Task, split: str, rows: Sequence[LabelledRow], predictions: Predictions) -> dict[str, float]:
    """Score the predictions of a split.

    Args:
        task: The task.
        split: Name of the split.
        rows: The rows of the split, with labels or gold answers.
        predictions: A prediction for each row, in order; answers by row id.

    Returns:
        Metric to value, the main metric first; 0 where a metric is undefined, such as a correlation with values that
        are all equal. Further figures of the kind follow: parts of the score of answers, and chosen thresholds.

    Raises:
        CorpusError: if the split has no rows, or none of its labels is known.
        ValueError: if there are not as many predictions as rows.
    """
    kind = KINDS[task.kind]
    if not rows:
        raise CorpusError(f"The split '{split}' of {task.title} has no rows to score.")
    facts = task.splits.get(split)
    is_published_without_labels = facts is not None and not facts.labelled
    if is_published_without_labels or not kind.check_labelled(rows):
        raise CorpusError(
            f"The split '{split}' of {task.title} has no labels, so its predictions can be written to files but "
            "not scored."
        )
    kind.check_predictions(predictions, rows, task)

    # Some kinds compute all of their metrics at once, with further figures; these are not computed again one by one.
    figures = kind.more_figures(predictions, rows, task)
    scores: dict[str, float] = {}
    for name in task.metrics:
        value = figures[name] if name in figures else kind.metrics[name](predictions, rows, task)
        scores[name] = 0.0 if math.isnan(value) else value

    # Of the figures, metrics that the task does not ask for are left out; all else is kept.
    further_figures = {name: value for name, value in figures.items() if name not in kind.metrics}
    return scores | further_figures


def intervals_of(
    scores: Mapping[str, float], task: Task, rows: Sequence[LabelledRow], predictions: Predictions
) -> dict[str, list[float]]:
    """Return the 95 % intervals of a split's scores by the task's metrics, as far as they have one.

    Args:
        scores: The scores that `score` returned.
        task: The task.
        rows: The rows with their labels.
        predictions: The predictions of the rows; empty for sentence vectors.
    """
    kind = KINDS[task.kind]
    intervals = {}
    for name in task.metrics:
        if name in scores:
            ends = kind.interval(name, scores[name], task, rows, predictions)
            if ends is not None:
                intervals[name] = list(ends)
    return intervals


def chance_of(task: Task, rows: Sequence[LabelledRow]) -> dict[str, float]:
    """Return the scores at chance by the task's metrics; metrics without one have 0, and are left out.

    Args:
        task: The task.
        rows: The rows with their labels.
    """
    chance = KINDS[task.kind].chance(rows, task)
    return {name: chance[name] for name in task.metrics if name in chance}


def only_answer(task: Task, predictions: Predictions) -> str | None:
    """Return the one answer that all rows are given, in words; None where there are several, or one row."""
    return KINDS[task.kind].only_answer(predictions, task)
