"""Progress of long work: the protocol of its reports, parts of a whole, and rates."""

from typing import NamedTuple, Protocol

_SPANS = ((1, "s"), (60, "min"), (3600, "h"))
"""Seconds of the spans that rates are given in."""


class Count(NamedTuple):
    """The number of things done, for the rate.

    Args:
        done: So far; a smaller number than before begins a new count.
        unit: The things, in the plural: `"cells"`.
    """

    done: float
    unit: str


class Report(Protocol):
    """Receives the share of the whole that is done, 0 to 1, the current step in words, and a count if there is one."""

    def __call__(self, share: float, what: str, count: Count | None = None, /) -> None:
        """Receive progress."""


def no_progress(share: float, what: str, count: Count | None = None, /) -> None:
    """Ignore progress; the default."""


def part_of(report: Report, start: float, end: float) -> Report:
    """Return a report for a part of the whole, from `start` to `end`."""

    def report_part(share: float, what: str, count: Count | None = None, /) -> None:
        report(start + (end - start) * share, what, count)

    return report_part


class Rate:
    """The rate of counted things: the average since the count of their unit began."""

    def __init__(self) -> None:
        self._first = Count(0, "")
        self._last = Count(0, "")
        self._began = 0.0

    def per_time(self, count: Count | None, now: float) -> str:
        """Return the rate in words, such as `12 cells/min`; empty while it is unknown.

        Args:
            count: The things done so far. Another unit or a smaller number begins a new count.
            now: The time in seconds.
        """
        if count is None:
            return ""
        is_new_count = count.unit != self._last.unit or count.done < self._last.done
        if is_new_count:
            self._first = count
            self._began = now
        self._last = count
        done = count.done - self._first.done
        seconds = now - self._began
        if done <= 0 or seconds <= 0:
            return ""
        return describe_rate(done / seconds, count.unit)


def describe_rate(per_second: float, unit: str) -> str:
    """Return a rate above 0 in words: per second, minute or hour, the first of these in which it is 1 or more."""
    if unit == "bytes":
        per_second = per_second / 1e6
        unit = "MB"
    seconds, span = _SPANS[-1]
    for candidate in _SPANS:
        if per_second * candidate[0] >= 1:
            seconds, span = candidate
            break
    value = per_second * seconds
    if value >= 10:
        return f"{value:,.0f} {unit}/{span}"
    if value >= 1:
        return f"{value:.1f} {unit}/{span}"
    return f"{value:.2g} {unit}/{span}"
