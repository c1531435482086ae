"""How long work tells what it has done; who listens is its caller's business."""

from __future__ import annotations

from typing import NamedTuple, Protocol

_SPANS = ((1.0, "s"), (60.0, "min"))
_LONGEST_SPAN = (3600.0, "h")


class Count(NamedTuple):
    """How many things are done, for the rate.

    Args:
        done: So far; a smaller number than before begins a new count.
        unit: What is counted, in the plural: `"cells"`.
    """

    done: float
    unit: str


class Report(Protocol):
    """Is told which share of the whole is done, 0 to 1, what is done now, and what can be counted, if anything."""

    def __call__(self, share: float, what: str, count: Count | None = None, /) -> None:
        """Be told."""


def quietly(share: float, what: str, count: Count | None = None, /) -> None:
    """Be told, and keep it."""


def part_of(report: Report, start: float, end: float) -> Report:
    """Return a report for a part of the whole, from `start` to `end`."""

    def tell(share: float, what: str, count: Count | None = None, /) -> None:
        report(start + (end - start) * share, what, count)

    return tell


class Rate:
    """Things done in a time, on average since their count began."""

    def __init__(self) -> None:
        self._first: Count | None = None
        self._last = Count(0, "")
        self._began = 0.0

    def per_time(self, count: Count | None, now: float) -> str:
        """Return for example `12 cells/min`; nothing as long as it cannot be told."""
        if count is None:
            return ""
        if self._first is None or count.unit != self._first.unit or count.done < self._last.done:
            self._first, self._began = count, now
        self._last = count
        done, seconds = count.done - self._first.done, now - self._began
        return describe_rate(done / seconds, count.unit) if done > 0 and seconds > 0 else ""


def describe_rate(per_second: float, unit: str) -> str:
    """Write a rate, above 0, by the second, minute or hour: whichever is the first with at least one."""
    if unit == "bytes":
        per_second, unit = per_second / 1e6, "MB"
    seconds, span = next((pair for pair in _SPANS if per_second * pair[0] >= 1), _LONGEST_SPAN)
    value = per_second * seconds
    digits = ",.0f" if value >= 10 else ".1f" if value >= 1 else ".2g"
    return f"{value:{digits}} {unit}/{span}"
