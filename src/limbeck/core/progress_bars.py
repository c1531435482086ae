"""Progress as bars on a console or in a notebook, or as lines now and then where it is neither."""

import io
import math
import sys
import time
from typing import Any, Self, TextIO

from rich import progress
from rich.console import Console

from limbeck.core.progress import Count, Rate, Report

RATE_COLUMN = progress.TextColumn("{task.fields[rate]}", style="progress.data.speed", markup=False)

_NOTEBOOK_SECONDS = 0.5
"""Least time between two pictures of the bars in a notebook."""
_NOTEBOOK_WIDTH = 100
"""Letters of a line there."""
_NOTEBOOK_FORM = '<pre style="white-space:pre;line-height:normal">{code}</pre>'


class _NotebookBars(progress.Progress):
    """Progress bars in the output of a notebook's cell: one element, which is written anew now and then.

    Attributes:
        _display: IPython's handle of the element; None before the bars were shown.
        _last_shown: The time at which they were shown last.
    """

    _display: Any = None
    _last_shown = -math.inf

    def update(self, task_id: progress.TaskID, **changes: Any) -> None:
        """Change a task, as rich does, and show all bars if the last time is long enough ago."""
        super().update(task_id, **changes)
        if time.monotonic() - self._last_shown >= _NOTEBOOK_SECONDS:
            self._show()

    def stop(self) -> None:
        """Show how the bars ended, or take them away where they do not stay."""
        super().stop()
        if self._display is not None:
            self._show(empty=self.live.transient)

    def _show(self, *, empty: bool = False) -> None:
        """Draw the bars, or nothing, as HTML in the place of their last picture."""
        from IPython.display import HTML, display

        self._last_shown = time.monotonic()
        page = Console(file=io.StringIO(), record=True, width=_NOTEBOOK_WIDTH, force_terminal=True, force_jupyter=False)
        if not empty:
            page.print(self.get_renderable())
        picture = HTML(page.export_html(inline_styles=True, code_format=_NOTEBOOK_FORM))
        if self._display is None:
            self._display = display(picture, display_id=True)
        else:
            self._display.update(picture)


class Bars:
    """Progress bars on a console or in a notebook, or lines now and then where it is neither; a context.

    Args:
        console: The console.
        columns: The columns of a bar, behind its name.
        seconds: Least time between two lines.
        at_once: Whether the first line is not delayed.
        options: Options of `rich.progress.Progress`.
    """

    def __init__(
        self,
        console: Console,
        *columns: progress.ProgressColumn,
        seconds: float = 30.0,
        at_once: bool = False,
        **options: Any,
    ) -> None:
        self.console = console
        self._are_shown = console.is_terminal or console.is_jupyter
        bars_class = _NotebookBars if console.is_jupyter else progress.Progress
        self.bars = bars_class(
            progress.TextColumn("[bold]{task.description}"),
            progress.BarColumn(bar_width=None),
            *columns,
            console=console,
            expand=True,
            disable=not console.is_terminal,
            get_time=time.monotonic,
            speed_estimate_period=math.inf,  # One cell of an evaluation may take an hour, a large shard minutes.
            **options,
        )
        self._seconds = seconds
        self._last_line = -math.inf if at_once else time.monotonic()

    def line(self, *parts: str) -> None:
        """Print a line of the parts that are not empty, unless there are bars or the last line is too new."""
        now = time.monotonic()
        is_due = now - self._last_line >= self._seconds
        if not self._are_shown and is_due:
            self._last_line = now
            print_plain(self.console, ", ".join(part for part in parts if part))

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()


def print_plain(console: Console, line: str, style: str | None = None) -> None:
    """Print a line as it is: no markup, no colours of its words, no wrapping."""
    console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


class ProgressBar(Bars):
    """A `Report` as one bar with the rate and the time left.

    Args:
        console: The console.
        at_once: Whether the first line is not delayed, where there is no bar.
    """

    def __init__(self, console: Console, *, at_once: bool = False) -> None:
        columns = (progress.TaskProgressColumn(), RATE_COLUMN, progress.TimeRemainingColumn(compact=True))
        # `_StandardError` lets other bars through, which would be a line for each change.
        super().__init__(console, *columns, seconds=15.0, at_once=at_once, transient=True, redirect_stderr=False)
        self._task = self.bars.add_task("…", total=1.0, rate="")
        self._rate = Rate()
        # The share and the time at which the present work began, by which the time left is estimated.
        self._unit = ""
        self._base_share = 0.0
        self._base_time = time.monotonic()
        self._standard_error: TextIO | None = None

    def __call__(self, share: float, what: str, count: Count | None = None, /) -> None:
        """Show the current step."""
        now = time.monotonic()
        rate = self._rate.per_time(count, now)
        if count is not None and count.unit != self._unit:
            # Reading tasks says nothing of how long cells take: the time left is told by the work that is going on.
            self._unit = count.unit
            self._base_share = share
            self._base_time = now
            self.bars.reset(self._task, total=1.0)
        self.bars.update(self._task, completed=share, description=what, rate=rate)
        # The bar has stepped aside if another library had something to show.
        if self.console.is_terminal:
            self.bars.start()

        left = ""
        done = share - self._base_share
        if done > 0 and share < 1:
            seconds_left = (now - self._base_time) * (1 - share) / done
            left = f"about {seconds_left:.0f} s left"
        self.line(f"{share:.0%}: {what}", rate, left)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._standard_error = sys.stderr
            sys.stderr = _StandardError(sys.stderr, self.bars)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._standard_error is not None:
            sys.stderr = self._standard_error
            self._standard_error = None


def line_by_line(report: Report, console: Console) -> Report:
    """Return a report that also prints a line when something else begins, where there is no bar to show it."""
    last = ""

    def report_line(share: float, what: str, count: Count | None = None, /) -> None:
        nonlocal last
        if what != last and not (console.is_terminal or console.is_jupyter):
            print_plain(console, f"{what} …")
        last = what
        report(share, what, count)

    return report_line


class _StandardError:
    """Standard error under a bar: the bar gives way to what others write, such as the bar of a download."""

    def __init__(self, stream: TextIO, bars: progress.Progress) -> None:
        self._stream = stream
        self._bars = bars

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where rich's own consoles write, the bar's among them."""
        return self._stream

    def write(self, text: str) -> int:
        """Take the bar off the screen, and write; the next report brings it back."""
        self._bars.stop()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
