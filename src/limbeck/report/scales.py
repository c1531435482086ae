"""Scales of axes: where a value lies, where its ticks are, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.ticker import LogLocator, MaxNLocator

_LOG_FROM = 20.0
"""How many times the least value the greatest has to be for a logarithmic scale."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows.

    Args:
        label: The quantity, with its unit.
        log: Logarithmic, where all values are positive.
        whole: Only whole numbers are ticks.
        from_zero: The axis begins at 0.
        room: What is left free at either end, as a share of the range of the values.
    """

    label: str
    log: bool = False
    whole: bool = False
    from_zero: bool = False
    room: float = 0.04


@dataclass(frozen=True)
class Scale:
    """A range of values on a range of places.

    Args:
        low: The value at `start`.
        high: The value at `end`.
        start: A place, in units of the figure.
        end: Another.
        log: Whether places follow the logarithm.
        ticks: Values to mark.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return where a value lies."""
        low, high, at = (
            (math.log10(self.low), math.log10(self.high), math.log10(value))
            if self.log
            else (self.low, self.high, value)
        )
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Write a tick, with as many decimals as tell it from its neighbour."""
        if self.log:
            return f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"
        step = min((b - a for a, b in pairwise(self.ticks)), default=1.0)
        digits = next((n for n in range(10) if abs(round(step, n) - step) < step / 1000), 10)
        return f"{tick:,.{digits}f}"


def make_scale(values: Iterable[float], axis: Axis, start: float, end: float) -> Scale:
    """Fit a scale to values, with some room at its ends.

    Args:
        values: Finite numbers; positive ones where the axis is logarithmic.
        axis: What it shows.
        start: The place of its low end.
        end: The place of its high end.
    """
    known = list(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if axis.log and low > 0:
        low, high = low / 1.15, high * 1.15
        ticks = [tick for tick in LogLocator(subs=(1, 2, 5), numticks=12).tick_values(low, high) if low <= tick <= high]
        ticks = ticks if len(ticks) <= 7 else [tick for tick in ticks if math.log10(tick).is_integer()]
        return Scale(low, high, start, end, True, tuple(map(float, ticks)))
    if axis.from_zero:
        low = min(low, 0.0)
    if axis.whole and high - low < 1:
        low, high = math.floor(low) - 0.5, math.ceil(high) + 0.5
    elif low == high:
        low, high = low - abs(low or 1.0) * 0.1, high + abs(high or 1.0) * 0.1
    room = axis.room * (high - low)
    low, high = low if axis.from_zero and low == 0 else low - room, high + room
    locator = (
        MaxNLocator(8, steps=[1, 2, 5, 10], integer=True) if axis.whole else MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
    )
    marked = [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]
    # The locator would rather mark halves than one tick alone.
    whole = [tick for tick in marked if tick.is_integer()] if axis.whole else marked
    return Scale(low, high, start, end, False, tuple(whole))


def spans_widely(values: Iterable[float]) -> bool:
    """Return whether positive values span so wide a range that only a logarithmic scale shows all of it."""
    known = list(values)
    return bool(known) and min(known) > 0 and max(known) > _LOG_FROM * min(known)


def show(value: float | None) -> str:
    """Write a number with four significant digits and thousands separators; nothing as a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
