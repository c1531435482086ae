"""Progress of long work: the protocol of its reports, parts of a whole, and rates."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, TypeAlias


class Count(NamedTuple):
    """The number of things done, for the rate.

    Args:
        done: So far; a smaller number than before begins a new count.
        unit: The things, in the plural: `"cells"`.
        total: All things; None where it is unknown.
    """

    done: float
    unit: str
    total: float | None = None


class Report(Protocol):
    """Receives the share of the whole that is done, 0 to 1, the current step in words, and a count if there is one."""

    def __call__(self, share: float, what: str, count: Count | None = None, /) -> None:
        """Receive progress."""


def no_progress(share: float, what: str, count: Count | None = None, /) -> None:
    """Ignore progress; the default."""


class Tick(Protocol):
    """Receives how much of an activity is done, of how much, and in which unit: `tick(3, 12, "batches")`."""

    def __call__(self, done: int, total: int, unit: str, /) -> None:
        """Receive progress."""


def no_tick(done: int, total: int, unit: str, /) -> None:
    """Ignore how much is done; the default."""


def amount_of(done: int, total: int, unit: str) -> str:
    """Return how much of an activity is done in words, such as `3 of 12 batches`; empty where there is only one thing.

    Args:
        done: The things that are done.
        total: All things.
        unit: The things, in the plural.
    """
    return "" if total == 1 else f"{done:,} of {total:,} {unit}"


ShowActivity: TypeAlias = Callable[[str], AbstractContextManager[Tick]]
"""Shows work for the time of a context. It takes the work in words; the context gives a function for its progress."""


@contextmanager
def no_activity(what: str, /) -> Iterator[Tick]:
    """Show nothing; the default."""
    yield no_tick


def part_of(report: Report, start: float, end: float) -> Report:
    """Return a report for a part of the whole, from `start` to `end`."""

    def report_part(share: float, what: str, count: Count | None = None, /) -> None:
        report(start + (end - start) * share, what, count)

    return report_part


def named(report: Report, what: str) -> Report:
    """Return a report that names the step itself, whatever the work calls it."""

    def report_named(share: float, _: str, count: Count | None = None, /) -> None:
        report(share, what, count)

    return report_named


def percent_of(share: float) -> int:
    """Return a share, 0 to 1, in whole percent; 100 is said of finished work alone."""
    percent = round(share * 100)
    if share < 1:
        percent = min(percent, 99)
    return percent


_SECONDS_OF_SPAN = {"s": 1, "min": 60, "h": 3600}


class Rate:
    """The rate of counted things: the average since the count of their unit began."""

    def __init__(self) -> None:
        self._first = Count(0, "")
        self._last = Count(0, "")
        self._began = 0.0
        self._span = ""

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
            self._span = ""
        self._last = count
        done = count.done - self._first.done
        seconds = now - self._began
        if done <= 0 or seconds <= 0:
            return ""
        rate = describe_rate(done / seconds, count.unit, span=self._span)
        # The next line has the same span, so that the two rates can be compared.
        _, self._span = rate.rsplit("/", 1)
        return rate


def describe_rate(per_second: float, unit: str, *, span: str = "") -> str:
    """Write a rate above 0 in the shortest span in which it is 1 or more: second, minute or hour.

    A rate below 1 an hour is written per hour too. For example, 0.04 rows per second are `2.4 rows/min`. Bytes are
    written in megabytes.

    Args:
        per_second: The rate.
        unit: The things that are counted, in the plural.
        span: The span in which the rate was written before: `s`, `min` or `h`. It is kept while the rate in it is
            between 0.1 and 1,000.
    """
    if unit == "bytes":
        per_second = per_second / 1e6
        unit = "MB"
    keeps_span = span in _SECONDS_OF_SPAN and 0.1 <= per_second * _SECONDS_OF_SPAN[span] <= 1000
    if not keeps_span:
        span = "h"
        for shorter in ("s", "min"):
            if per_second * _SECONDS_OF_SPAN[shorter] >= 1:
                span = shorter
                break
    rate = per_second * _SECONDS_OF_SPAN[span]

    if rate >= 10:
        return f"{rate:,.0f} {unit}/{span}"
    if rate >= 1:
        return f"{rate:.1f} {unit}/{span}"
    return f"{rate:.2g} {unit}/{span}"
