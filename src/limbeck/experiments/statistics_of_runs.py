"""Mean and sample deviation of the runs of a grid point, in percent."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Runs:
    """A figure over runs that differ in their seed.

    Attributes:
        values: Of each run, in percent.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Their sample deviation (n - 1); None of a single run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def in_percent(values: Sequence[float]) -> Runs:
    """Return runs of values between -1 and 1."""
    return Runs(tuple(100 * value for value in values))


def average(parts: Sequence[Runs]) -> Runs:
    """Return the average over tasks: run by run where all have the same number of runs, else of their means.

    Args:
        parts: At least one.
    """
    if len({len(part.values) for part in parts}) == 1:
        return Runs(tuple(statistics.fmean(run) for run in zip(*(part.values for part in parts), strict=True)))
    return Runs((statistics.fmean(part.mean for part in parts),))
