"""The scores of a candidate, and their mean, which is its fitness.

A *candidate* is what a search tries, such as a layer mapping; its student is scored on tasks or on held-out text.
"""

import math
import statistics
from collections.abc import Mapping
from typing import TypeAlias

Scores: TypeAlias = dict[str, float]
"""By name, in percent; more is better."""


def mean_score(scores: Mapping[str, float]) -> float:
    """Return the mean of all scores; NaN if one is not finite. Source: ELM (arXiv 2012.06153) section 4.4."""
    for score in scores.values():
        if not math.isfinite(score):
            return math.nan
    return statistics.fmean(scores.values())
