"""The best figures of several untrained students: each figure is that of the student which is best by it.

All figures are better where they are higher.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from limbeck.core.records import Agreement, Retrieval
from limbeck.core.records.run_evaluation import RETRIEVAL
from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX


def best_scores(scores: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the highest score by each metric.

    Thresholds, which are no scores, are those of the first student.

    Args:
        scores: The scores of each student, by metric; without a student there are none.
    """
    if not scores:
        return {}
    best = dict(scores[0])
    for metric in best:
        if not metric.endswith(THRESHOLD_SUFFIX):
            best[metric] = highest(figures.get(metric) for figures in scores)
    return best


def best_agreement(agreements: Sequence[Agreement]) -> Agreement:
    """Return the agreement with the highest correlation, of one or more."""
    return max(agreements, key=lambda agreement: _rank(agreement.spearman))


def best_retrieval(retrievals: Sequence[Retrieval]) -> Retrieval:
    """Return the highest figures of one or more retrievals in the same pool, each with its own interval."""
    best = retrievals[0].model_copy(update={"intervals": {}})
    for metric in RETRIEVAL:
        highest_one = max(retrievals, key=lambda retrieval: _rank(getattr(retrieval, metric)))
        setattr(best, metric, getattr(highest_one, metric))
        if metric == "mrr_at_10":
            best.interval = highest_one.interval
        elif metric in highest_one.intervals:
            best.intervals[metric] = highest_one.intervals[metric]
    return best


def highest(values: Iterable[float | None]) -> float | None:
    """Return the highest value; None where none is defined."""
    return max(values, key=_rank, default=None)


def _rank(value: float | None) -> float:
    """Return a value for a comparison, in which one that is not defined comes last."""
    return -math.inf if value is None or math.isnan(value) else value


def name_of_start(number: int, count: int) -> str:
    """Return the name of one of several untrained students, for lines of progress.

    Args:
        number: Its number, from 1.
        count: The number of untrained students.
    """
    return "the untrained start" if count == 1 else f"untrained start {number} of {count}"
