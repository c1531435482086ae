"""95 % intervals: of scores over rows, of means over runs, and of paired differences, by which runs are told apart."""

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end."""
_Z = statistics.NormalDist().inv_cdf(0.975)
RESAMPLES = 200


def of_share(share: float, rows: int) -> Interval:
    """Return the interval of a share of rows, such as an accuracy; within 0 and 1, also where all or none are right.

    Source: Wilson 1927, without a correction for continuity.
    """
    scale = 1 + _Z**2 / rows
    middle = (share + _Z**2 / (2 * rows)) / scale
    half = _Z * math.sqrt(share * (1 - share) / rows + _Z**2 / (4 * rows**2)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def of_correlation(correlation: float, rows: int, *, ranked: bool) -> Interval | None:
    """Return the interval of a correlation over rows, by Fisher's transform; None of fewer than five rows.

    Args:
        correlation: -1 to 1.
        rows: How many.
        ranked: Whether it is of ranks (Spearman's).

    Source: Fisher 1921; for ranks the variance (1 + r² / 2) / (n - 3) of Bonett and Wright 2000.
    """
    if rows < 5 or not -1 < correlation < 1:
        return None
    half = _Z * math.sqrt((1 + correlation**2 / 2 if ranked else 1) / (rows - 3))
    middle = math.atanh(correlation)
    return math.tanh(middle - half), math.tanh(middle + half)


def of_resampled(score: Callable[[Sequence[int]], float], rows: int) -> Interval:
    """Return the percentile bootstrap of a score over rows, the same for the same rows.

    Args:
        score: Of the rows of these numbers, some of them several times.
        rows: How many there are.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Of draws with one class.
        found = [score(generator.integers(rows, size=rows).tolist()) for _ in range(RESAMPLES)]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def of_mean(values: Sequence[float]) -> Interval | None:
    """Return the interval of a mean over runs, by Student's t; None of fewer than two."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # Tables of finished records are printed without it where there is one run.

    middle = statistics.fmean(values)
    half = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return middle - half, middle + half


def of_many(values: Sequence[float]) -> Interval:
    """Return the interval of a mean over many rows, by the normal approximation."""
    middle = statistics.fmean(values)
    half = _Z * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return middle - half, middle + half


def is_greater(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    """Return whether figures are greater than others by more than chance: the interval of their differences is above 0.

    Args:
        first: By seed.
        second: By seed; those that both have are paired, and fewer than two tell nothing.
    """
    found = of_mean([first[seed] - second[seed] for seed in first.keys() & second.keys()])
    return found is not None and found[0] > 0
