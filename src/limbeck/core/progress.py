"""How long work tells what it has done; who listens is its caller's business."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

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


# Showing how far long work is: a bar with the rate and the time left, or lines where there is no terminal.


_SECONDS_BETWEEN_BAR_LINES = 15.0


class ProgressBar:
    """A `Report` on a console.

    Args:
        console: Where to write.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            _RateColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
            transient=True,
            disable=not console.is_terminal,
            redirect_stderr=False,  # `_StandardError` lets other bars through, which would be a line for each change.
            get_time=time.monotonic,
            speed_estimate_period=math.inf,  # One cell of an evaluation may take an hour.
        )
        self._task = self._progress.add_task("…", total=1.0, rate="")
        self._rate = Rate()
        self._started = self._last_line = time.monotonic()
        self._standard_error: TextIO | None = None

    def __call__(self, share: float, what: str, count: Count | None = None, /) -> None:
        """Show what is done now."""
        now = time.monotonic()
        rate = self._rate.per_time(count, now)
        self._progress.update(self._task, completed=share, description=what, rate=rate)
        if self._console.is_terminal:
            self._progress.start()  # It has stepped aside if another library had something to show.
            return
        if now - self._last_line < _SECONDS_BETWEEN_BAR_LINES:
            return
        self._last_line = now
        left = f"about {(now - self._started) * (1 - share) / share:.0f} s left" if share > 0 else ""
        line = ", ".join(filter(None, (f"{share:.0%}: {what}", rate, left)))
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._standard_error = sys.stderr
            sys.stderr = _StandardError(sys.stderr, self._progress)
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._standard_error is not None:
            sys.stderr = self._standard_error
            self._standard_error = None


def line_by_line(report: Report, console: Console) -> Report:
    """Return a report that also prints a line when something else begins, where there is no bar to show it."""
    last = ""

    def tell(share: float, what: str, count: Count | None = None, /) -> None:
        nonlocal last
        if what != last and not console.is_terminal:
            console.print(f"{what} …", highlight=False, markup=False, soft_wrap=True)
        last = what
        report(share, what, count)

    return tell


class _RateColumn(ProgressColumn):
    """Shows the rate that the task was told last."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["rate"], style="progress.data.speed")


class _StandardError:
    """Standard error under a bar: the bar gives way to what others write, such as the bar of a download."""

    def __init__(self, stream: TextIO, progress: Progress) -> None:
        self._stream = stream
        self._progress = progress

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where rich's own consoles write, the bar's among them."""
        return self._stream

    def write(self, text: str) -> int:
        """Take the bar off the screen, and write; the next report brings it back."""
        self._progress.stop()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# Showing how far the corpus is built.


Told = Callable[[str, int, int | None], None]

_SECONDS_BETWEEN_CORPUS_LINES = 30.0


class CorpusProgress:
    """A progress callback for `build_corpus`: a bar for each step; plain lines where there is no terminal.

    Args:
        console: Where to write.
        told: Also told the step, how much of it is done, and of how much.
    """

    def __init__(self, console: Console, told: Told | None = None) -> None:
        self._told = told
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[amount]}", style="progress.download"),
            TextColumn("{task.fields[rate]}", style="progress.data.speed"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
            disable=not console.is_terminal,
            speed_estimate_period=math.inf,  # A large shard takes minutes.
        )
        self._tasks: dict[str, TaskID] = {}
        self._rates: dict[str, Rate] = {}
        self._begun: dict[str, float] = {}
        self._last_line = time.monotonic()

    def __call__(self, step: str, done: int, total: int | None, unit: str, /) -> None:
        """Report how much of a step is done, of how much, if that is known, and what is counted."""
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total, amount="", rate="")
            self._rates[step], self._begun[step] = Rate(), time.monotonic()
            if not self._console.is_terminal:
                self._console.print(f"{step} …", highlight=False, markup=False, soft_wrap=True)
        now = time.monotonic()
        amount = describe_amount(done, total, unit) if unit else ""
        rate = self._rates[step].per_time(Count(done, unit) if unit else None, now)
        self._progress.update(self._tasks[step], completed=done, total=total, amount=amount, rate=rate)
        if not self._console.is_terminal and done and now - self._last_line >= _SECONDS_BETWEEN_CORPUS_LINES:
            self._last_line = now
            left = "" if total is None else f"about {(now - self._begun[step]) * (total - done) / done:.0f} s left"
            line = ", ".join(filter(None, (f"{step}: {amount}", rate, left)))
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        if self._told is not None:
            self._told(step, done, total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def describe_amount(done: int, total: int | None, unit: str) -> str:
    """Write how much is done, for example `3,000 of 12,000 rows` or `1.2 GB of 3.4 GB`."""
    if unit == "bytes":
        return decimal(done) if total is None else f"{decimal(done)} of {decimal(total)}"
    return f"{done:,} {unit}" if total is None else f"{done:,} of {total:,} {unit}"
