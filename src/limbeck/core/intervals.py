"""95 % intervals: of scores over rows, of means over runs, and of paired differences, by which runs are told apart."""

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end."""
RESAMPLES = 200
"""Draws of a bootstrap."""

_LEVEL = 0.975
"""Quantile of the upper end: 2.5 % are above it, and as many below the lower end."""
_Z = statistics.NormalDist().inv_cdf(_LEVEL)
"""The same quantile of the normal distribution, 1.96 standard deviations."""
_FEWEST_ROWS_OF_A_CORRELATION = 5
"""Fewest rows whose correlation has an interval; the variance divides by the rows less three."""


def of_share(share: float, rows: int) -> Interval:
    """Return the interval of a share of rows, such as an accuracy; within 0 and 1, also where all or none are right.

    Source: Wilson 1927, without a correction for continuity.
    """
    z_squared = _Z**2
    scale = 1 + z_squared / rows
    middle = (share + z_squared / (2 * rows)) / scale
    variance = share * (1 - share) / rows + z_squared / (4 * rows**2)
    half = _Z * math.sqrt(variance) / scale
    low = max(0.0, middle - half)
    high = min(1.0, middle + half)
    return low, high


def of_correlation(correlation: float, rows: int, *, ranked: bool) -> Interval | None:
    """Return the interval of a correlation over rows, by Fisher's transform; None of fewer than five rows.

    Args:
        correlation: -1 to 1.
        rows: The number of rows.
        ranked: Whether it is of ranks (Spearman's).

    Source: Fisher 1921; for ranks the variance (1 + r² / 2) / (n - 3) of Bonett and Wright 2000.
    """
    # The transform of a perfect correlation is infinite.
    is_perfect = not -1 < correlation < 1
    if rows < _FEWEST_ROWS_OF_A_CORRELATION or is_perfect:
        return None
    variance = 1 / (rows - 3)
    if ranked:
        variance = (1 + correlation**2 / 2) / (rows - 3)

    # The transform is about normal; its ends are turned back into correlations.
    half = _Z * math.sqrt(variance)
    middle = math.atanh(correlation)
    return math.tanh(middle - half), math.tanh(middle + half)


def of_resampled(score: Callable[[Sequence[int]], float], rows: int) -> Interval | None:
    """Return the percentile bootstrap of a score over rows, the same for the same rows; None of one without width.

    Rows that are all right give an interval without width, which would deny chance.

    Args:
        score: Scores the rows that have these indices. An index may come several times.
        rows: The number of rows, whose indices begin with 0.
    """
    return each_of_resampled(lambda draw: {"score": score(draw)}, rows).get("score")


def each_of_resampled(scores: Callable[[Sequence[int]], Mapping[str, float]], rows: int) -> dict[str, Interval]:
    """Return the percentile bootstrap of several scores over rows, by name; see `of_resampled`.

    Args:
        scores: Scores the rows that have these indices; NaN is an undefined score.
        rows: The number of rows.

    Returns:
        The intervals that have a width. A score that is undefined for a draw has none.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        # Metrics warn of draws that happen to have one class.
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(RESAMPLES):
            draw = generator.integers(rows, size=rows).tolist()
            for name, value in scores(draw).items():
                drawn.setdefault(name, []).append(value)
    intervals = {}
    for name, values in drawn.items():
        low, high = np.percentile(values, [2.5, 97.5])
        # The percentiles of undefined scores are NaN, which is not below NaN either.
        if low < high:
            intervals[name] = (float(low), float(high))
    return intervals


def of_mean(values: Sequence[float]) -> Interval | None:
    """Return the interval of a mean over runs, by Student's t; None of fewer than two, and of runs that are all equal.

    Equal runs give an interval without width, which would deny chance: a few seeds may agree on few rows.
    """
    if len(values) < 2:
        return None
    # Differences of runs are equal only up to rounding.
    if math.isclose(min(values), max(values)):
        return None
    # Tables of finished records are printed without scipy where there is one run.
    from scipy.special import stdtrit

    t = float(stdtrit(len(values) - 1, _LEVEL))
    return _around_mean(values, t)


def ends_of(interval: Sequence[float | None] | None) -> Interval | None:
    """Return the two ends of a recorded interval; None where one of them is not known."""
    if interval is None or len(interval) != 2:
        return None
    low, high = interval
    if low is None or high is None:
        return None
    return low, high


def of_many(values: Sequence[float]) -> Interval:
    """Return the interval of a mean over many rows, by the normal approximation."""
    if len(values) == 1:
        return -math.inf, math.inf
    return _around_mean(values, _Z)


def of_mean_share(values: Sequence[float]) -> Interval | None:
    """Return the interval of a mean over many rows or queries, of values from 0 to 1 such as nDCG; within 0 and 1.

    It is that of `of_many`. Values that are all 0 or 1 are right or wrong, and have the interval of their share. Other
    values that are all equal have None: their interval would have no width. A single value between 0 and 1 is such a
    case.
    """
    mean = statistics.fmean(values)
    if all(value in (0, 1) for value in values):
        return of_share(mean, len(values))
    if min(values) == max(values):
        return None
    low, high = of_many(values)
    return max(0.0, low), min(1.0, high)


def is_greater(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    """Return whether figures are greater than others by more than chance: the interval of their differences is above 0.

    Differences that are all equal have no interval, so they tell nothing; see `of_mean`.

    Args:
        first: The figures by seed.
        second: The other figures by seed; seeds of both are paired, and fewer than two pairs tell nothing.
    """
    shared_seeds = first.keys() & second.keys()
    interval = of_mean([first[seed] - second[seed] for seed in shared_seeds])
    if interval is None:
        return False
    low, _ = interval
    return low > 0


def _around_mean(values: Sequence[float], quantile: float) -> Interval:
    """Return the mean, less and plus its standard error times a quantile."""
    mean = statistics.fmean(values)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half
