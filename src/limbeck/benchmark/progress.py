"""Showing how far long work is: a bar with the rate and the time left, or lines where there is no terminal."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from limbeck.progress import Count, Rate, Report

_SECONDS_BETWEEN_LINES = 15.0


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
        if now - self._last_line < _SECONDS_BETWEEN_LINES:
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
