"""The range of scores: 0 to 1 or -1 to 1, which rows of `results.jsonl` are checked for when written and when read."""

from collections.abc import Mapping
from typing import NamedTuple

from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX


class ScoreOutOfRange(NamedTuple):
    """A score that no metric can have.

    Args:
        metric: Name of the metric.
        value: The score.
    """

    metric: str
    value: float


def find_score_out_of_range(scores_of_splits: Mapping[str, Mapping[str, float | None]]) -> ScoreOutOfRange | None:
    """Return the first score that is not between -1 and 1, NaN too; None where all are.

    A threshold may have any size, and a score that is None is not known.

    Args:
        scores_of_splits: The scores of each split, by metric.
    """
    for scores in scores_of_splits.values():
        for metric, value in scores.items():
            if metric.endswith(THRESHOLD_SUFFIX) or value is None:
                continue
            is_in_range = abs(value) <= 1  # False for NaN.
            if not is_in_range:
                return ScoreOutOfRange(metric, value)
    return None
