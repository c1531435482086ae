"""Progress as bars on a console or in a notebook, or as a line from time to time where the output is neither."""

import io
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TextIO

from rich import progress
from rich.console import Console
from rich.table import Column
from rich.text import Text

from limbeck.core.blocks import duration_to_the_second
from limbeck.core.logged_console import LoggedConsole
from limbeck.core.notebook_html import html_of_page
from limbeck.core.progress import Count, Rate, Report, Tick, amount_of, percent_of
from limbeck.option_names import for_caller

RATE_COLUMN = progress.TextColumn("{task.fields[rate]}", style="progress.data.speed", markup=False)

LINE_SECONDS = 8.0
"""Seconds between two lines where there are no bars. A reader of a log waits for ten at the most.

The other two are for code that stops all threads, such as the loading of a large library on a busy machine.
"""
_WATCH_SECONDS = 0.5
"""Seconds between two looks at whether a line is due."""
_BRIEF_SECONDS = 3.0
"""Seconds up to which an activity is not worth a line of its own."""
_NOTEBOOK_SECONDS = 0.5
"""Least seconds between two drawings of the bars in a notebook."""
_NOTEBOOK_CLOCK_SECONDS = 1.0
"""Seconds between two drawings of the bars in a notebook while nothing reports."""
_LITTLE_LONGER = 1.2
"""An estimate of the time left that is less than this many times the one before is only a little longer."""
_HELD_SECONDS = 15.0
"""Seconds for which estimates that are a little longer are not told."""
_LETTERS_BESIDE = 30
"""Letters of a terminal's line for a short bar, the percentage and the clock, with the gaps between them."""
_NOTEBOOK_WIDTH = 115
"""Characters of a line in a notebook, as many as rich prints there."""


class _NotebookBars(progress.Progress):
    """Progress bars in the output of a notebook's cell: one HTML element, which is replaced at most twice a second.

    Attributes:
        _display: IPython's handle of the element; None before the bars are first shown.
        _last_shown: The time at which they were shown last, in seconds of `time.monotonic`.
    """

    _display: Any = None
    _last_shown = -math.inf

    def update(self, task_id: progress.TaskID, **changes: Any) -> None:
        """Change a task, as rich does, and show all bars unless they were shown just before."""
        super().update(task_id, **changes)
        with self._lock:
            if time.monotonic() - self._last_shown >= _NOTEBOOK_SECONDS:
                self._show()

    def show_if_due(self) -> None:
        """Show the bars if they were not shown for a second, so that their clock goes on while nothing reports."""
        with self._lock:
            if self.tasks and time.monotonic() - self._last_shown >= _NOTEBOOK_CLOCK_SECONDS:
                self._show()

    def stop(self) -> None:
        """Show the last state of the bars, or remove them if they are transient."""
        super().stop()
        if self._display is not None:
            self._show(empty=self.live.transient)

    def _show(self, *, empty: bool = False) -> None:
        """Replace the element by a drawing of the bars, or by an empty one; a quiet console shows none."""
        if self.console.quiet:
            return
        from IPython.display import HTML, display

        self._last_shown = time.monotonic()
        # A console that prints nowhere, and records what is printed so that it can be exported as HTML.
        page = Console(file=io.StringIO(), record=True, width=_NOTEBOOK_WIDTH, force_terminal=True, force_jupyter=False)
        if not empty:
            page.print(self.get_renderable())
        picture = HTML(html_of_page(page))
        if self._display is None:
            self._display = display(picture, display_id=True)
        else:
            self._display.update(picture)


class _NameColumn(progress.TextColumn):
    """The name of the work, the only column that is cut on a narrow terminal: the time behind it stays whole."""

    def __init__(self) -> None:
        # Rich narrows columns that may wrap before all others. This one is cut in place of wrapping.
        super().__init__("[bold]{task.description}", table_column=Column(no_wrap=False))

    def render(self, task: progress.Task) -> Text:
        """Return the name as one line."""
        name = super().render(task)
        name.no_wrap = True
        name.overflow = "ellipsis"
        return name


class ClockColumn(progress.TimeRemainingColumn):
    """The time left of a bar, or the time that it took once it is finished: `00:33 left`, then `took 01:20`."""

    def __init__(self) -> None:
        super().__init__(compact=True, elapsed_when_finished=True)

    def render(self, task: progress.Task) -> Text:
        """Return the time with its word; without one where it is unknown."""
        time_text = super().render(task)
        if task.finished:
            return Text("took ", style=time_text.style).append_text(time_text)
        if task.total is not None and task.time_remaining is not None:
            time_text.append(" left")
        return time_text


@dataclass(frozen=True)
class TimeLeft:
    """An estimate of the time that work still takes, for a line of progress.

    Args:
        seconds: The time, from the moment of the line.
        form: Its words, with `{seconds}` or `{minutes}` in them.
        is_counted_down: Whether a line that is repeated has less time left than before. A step that takes longer than
            its work made believe would be counted down too far, and the next line would have more time left.
    """

    seconds: float
    form: str = "about {seconds:.0f} s left"
    is_counted_down: bool = True

    def after(self, passed: float) -> str:
        """The words when some seconds have passed; empty once the estimate has, or where its number would be 0.

        An estimate that has passed was too short.
        """
        seconds = self.seconds
        if self.is_counted_down:
            seconds -= passed
        minutes = seconds / 60
        if seconds <= 0:
            return ""
        # "0.0 min left" would tell nothing of 2 seconds.
        words = self.form.format(seconds=seconds, minutes=minutes)
        is_written_as_zero = words == self.form.format(seconds=0.0, minutes=0.0)
        return "" if is_written_as_zero else words


class Bars:
    """A context that shows progress as bars on a console or in a notebook, or as lines where the output is neither.

    Where there are lines, one comes every `LINE_SECONDS`, also when nothing reports: a thread repeats the last one, and
    adds for how long it has been the last, to the second, so that no line is like the one before. The work may be a
    step that takes minutes.

    Args:
        console: The console.
        columns: The columns of a bar, behind its name.
        at_once: Whether the first line is printed at once, instead of after this time.
        options: Options of `rich.progress.Progress`.
    """

    def __init__(
        self,
        console: Console,
        *columns: progress.ProgressColumn,
        at_once: bool = False,
        **options: Any,
    ) -> None:
        self.console = console
        self._are_shown = console.is_terminal or console.is_jupyter
        # Where there are bars, lines are still for the file of a console that has one.
        self._has_file = isinstance(console, LoggedConsole)
        bars_class = _NotebookBars if console.is_jupyter else progress.Progress
        self.bars = bars_class(
            # It turns while a step takes long, so that a bar which stands still is told from a program that hangs.
            progress.SpinnerColumn(finished_text="⠿"),
            _NameColumn(),
            # With a ratio the bar has the width that the other columns leave.
            progress.BarColumn(bar_width=None, table_column=Column(ratio=1)),
            *columns,
            console=console,
            expand=True,
            disable=not console.is_terminal,
            get_time=time.monotonic,
            speed_estimate_period=math.inf,  # A step may take an hour, and rich forgets after 30 s by default.
            **options,
        )
        # The main thread and the one that repeats lines change these.
        self._lock = threading.Lock()
        self._last_printed = -math.inf if at_once else time.monotonic()
        self._text = ""
        self._text_began = time.monotonic()
        self._left: TimeLeft | None = None
        self._left_began = time.monotonic()
        self._watcher: _Watcher | None = None

    def line(self, *parts: str, left: TimeLeft | None = None) -> None:
        """Set the line of progress, and print it where there are no bars, unless a line was printed just now.

        Args:
            parts: The parts of the line; empty ones are left out.
            left: The estimate of the time left, the last part; None where it is unknown.
        """
        now = time.monotonic()
        text = ", ".join(part for part in parts if part)
        with self._lock:
            if text != self._text:
                self._text = text
                self._text_began = now
            if left != self._left:
                self._left = left
                self._left_began = now
        self._print_if_due(now)

    def begin_step(self, name: str) -> None:
        """Print the name of a step that begins, unless there are bars."""
        now = time.monotonic()
        with self._lock:
            self._text = name
            self._left = None
            self._text_began = now
            self._last_printed = now
        self._print_line(f"{name} …")

    def _repeat_line(self) -> None:
        """Print the last line or draw the bars of a notebook again, if nothing has replaced them for so long."""
        self._print_if_due(time.monotonic())
        # Rich has a thread of its own that draws the bars of a terminal again, but none for a notebook.
        if isinstance(self.bars, _NotebookBars):
            self.bars.show_if_due()

    def _print_if_due(self, now: float) -> None:
        """Print the line if a line is due, and for how long it has been the line, unless that is brief.

        Args:
            now: The time in seconds.
        """
        with self._lock:
            if not self._text or now - self._last_printed < LINE_SECONDS:
                return
            self._last_printed = now
            seconds = now - self._text_began
            text = _with_time_left(self._text, self._left, passed=now - self._left_began)
        if seconds > _BRIEF_SECONDS:
            text = f"{text} (for {duration_to_the_second(seconds)} so far)"
        # Where there are bars, this writes to the log file only.
        self._print_line(text)

    def _print_line(self, text: str) -> None:
        """Print a line of progress where there are no bars; where there are, write it to the file of the console."""
        if not self._are_shown:
            print_plain(self.console, text)
        elif isinstance(self.console, LoggedConsole):
            self.console.write_lines(text)

    def __enter__(self) -> Self:
        self.bars.start()
        # Rich itself draws the bars of a terminal again.
        has_reader = not self.console.is_terminal and not self.console.quiet
        if has_reader or self._has_file:
            self._watcher = _Watcher(self._repeat_line)
        return self

    def __exit__(self, *error: object) -> None:
        if self._watcher is not None:
            self._watcher.end()
            self._watcher = None
        self.bars.stop()


def _with_time_left(text: str, left: TimeLeft | None, *, passed: float) -> str:
    """Return a line with the time left as its last part, if there is an estimate that has not passed."""
    words = "" if left is None else left.after(passed)
    return f"{text}, {words}" if words else text


class _Watcher:
    """A thread that calls a function every `_WATCH_SECONDS`, until it is ended.

    Args:
        look: The function.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="limbeck progress", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread, and wait for it."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_WATCH_SECONDS):
            self._look()


@contextmanager
def activity(console: Console, what: str) -> Iterator[Tick]:
    """Show that something is done which may take longer than a reader likes to wait without a word.

    On a terminal it is a bar that goes when the work is done; elsewhere lines, and none if the work is brief. The time
    left is estimated from the pace since the first count.

    Args:
        console: The console; at most one activity or bar is shown on it at a time.
        what: The work in words, such as "loading the teacher".

    Yields:
        A function that shows how much is done, for work that is counted.
    """
    amount = progress.TextColumn("{task.fields[amount]}", style="progress.download")
    # On a narrow terminal the bar gets shorter, and not the clock.
    elapsed = progress.TimeElapsedColumn(table_column=Column(no_wrap=True))
    time_left = progress.TextColumn("{task.fields[left]}", style="progress.remaining")
    with _ActivityBars(console, amount, elapsed, time_left, transient=True) as shown:
        task = shown.bars.add_task(what, total=None, amount="", left="")
        shown.line(what)
        pace = Pace()

        def tick(done: int, total: int, unit: str, /) -> None:
            text = amount_of(done, total, unit)
            left = pace.time_left(done, total)
            words = "" if left is None else left.after(0.0)
            shown.bars.update(task, completed=done, total=total, amount=text, left=words)
            # The work goes on behind its last count, and the clock with it, which rich stops at a full bar.
            shown.bars.tasks[0].finished_time = None
            shown.line(f"{what}: {text}" if text else what, left=left)

        yield tick


class Pace:
    """Estimates the time that counted work still takes, from the counts since the first one.

    Args:
        work: The work in words, behind "left"; empty for all work.

    Attributes:
        _first: The first count, and its time in seconds.
        _last: The last count. A smaller one, as of further work of the same activity, begins anew.
        _last_seconds: The last estimate that was told.
        _held_since: The time of the first estimate since then that was not told; None where there is none.
    """

    def __init__(self, work: str = "") -> None:
        self._work = work
        self._first = (0.0, 0.0)
        self._last: float | None = None
        self._last_seconds = math.inf
        self._held_since: float | None = None

    def time_left(self, done: float, total: float) -> TimeLeft | None:
        """Return the estimate after a count; None where it is unknown, as after the first count.

        An estimate that is a little longer than the one before, as on a busy machine, is not told at once: the time
        left would go up and down. If it stays longer, it is told, since a time left that stands still is wrong too.
        """
        now = time.monotonic()
        begins_anew = self._last is None or done < self._last
        if begins_anew:
            self._first = (done, now)
            self._last_seconds = math.inf
        self._last = done

        first_count, began = self._first
        if done == first_count or done >= total:
            return None
        seconds = (now - began) * (total - done) / (done - first_count)
        if self._is_held_back(seconds, now):
            seconds = self._last_seconds
        else:
            self._last_seconds = seconds
            self._held_since = None
        # These words are short, so that a terminal of 80 columns has room for the clock too.
        form = "{seconds:.0f} s left" if seconds < 60 else "{minutes:.1f} min left"
        return TimeLeft(seconds, form + self._work, is_counted_down=False)

    def _is_held_back(self, seconds: float, now: float) -> bool:
        """Return whether the last estimate is told again in place of one that is only a little longer; note since when.

        Args:
            seconds: The new estimate.
            now: The time of the new estimate, in seconds.
        """
        is_little_longer = self._last_seconds <= seconds < _LITTLE_LONGER * self._last_seconds
        if not is_little_longer:
            return False
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since < _HELD_SECONDS


class _ActivityBars(Bars):
    """The bar of an activity, whose first line comes after `_BRIEF_SECONDS`."""

    def __init__(self, console: Console, *columns: progress.ProgressColumn, **options: Any) -> None:
        super().__init__(console, *columns, **options)
        # As if the last line were so old already that the next one is due after `_BRIEF_SECONDS`.
        self._last_printed += _BRIEF_SECONDS - LINE_SECONDS


def print_plain(console: Console, line: str, style: str | None = None) -> None:
    """Print a line without markup, colours of words, or wrapping; it names options as the caller knows them."""
    console.print(for_caller(line), style=style, highlight=False, markup=False, soft_wrap=True)


class ProgressBar(Bars):
    """A `Report` as one bar with the rate and the time left.

    Args:
        console: The console.
        at_once: Whether the first line is not delayed, where there is no bar.
        is_even: Whether equal shares take about equally long. If they do not, as where several kinds of work follow
            each other, no time left is shown: nobody knows the pace of a step that has not begun.
        in_parts: Whether the shares are those of parts, which follow each other. A share that is smaller than the one
            before begins a part. The percentage, the count and the time left are then those of the part.
    """

    def __init__(
        self, console: Console, *, at_once: bool = False, is_even: bool = True, in_parts: bool = False
    ) -> None:
        time_column: progress.ProgressColumn = progress.TimeElapsedColumn()
        if is_even:
            time_column = ClockColumn()
        columns = (progress.TaskProgressColumn(), RATE_COLUMN, time_column)
        self._is_even = is_even
        self._in_parts = in_parts
        # Rich would print each change of another library's bar as a line (redirect_stderr); `_StandardError` does not.
        super().__init__(console, *columns, at_once=at_once, transient=True, redirect_stderr=False)
        self._task = self.bars.add_task("starting", total=1.0, rate="")
        self._rate = Rate()
        # What was reported last, by which new work is told, and the pace of the present work.
        self._share = 0.0
        self._count = Count(0, "")
        self._pace = self._new_pace()
        self._standard_error: TextIO | None = None

    def __call__(self, share: float, what: str, count: Count | None = None, /) -> None:
        """Show the progress; these are the arguments of a `Report`.

        Args:
            share: The share of the whole work that is done, 0 to 1.
            what: The current step in words.
            count: What the step has counted so far, such as tokens, for the rate.
        """
        amount = self._rate.per_time(count, time.monotonic())
        if self._in_parts and count is not None and count.total is not None:
            amount = amount_of(int(count.done), int(count.total), count.unit)
        # On a narrow terminal the step and the clock matter more than the amount.
        has_room = len(what) + len(amount) + _LETTERS_BESIDE <= self.console.width
        shown_amount = amount if has_room else ""
        is_new_work = self._is_new_work(share, count)
        if is_new_work:
            self._pace = self._new_pace()
        if is_new_work and self._is_even:
            # The clock begins anew, in the same drawing as the other columns.
            self.bars.reset(self._task, total=1.0, completed=0, description=what, rate=shown_amount)
        self._share = share
        self._count = count or self._count
        self.bars.update(self._task, completed=share, description=what, rate=shown_amount)
        # `_StandardError` has stopped the bar if another library had something to show.
        if self.console.is_terminal:
            self.bars.start()

        left = self._pace.time_left(share, 1.0) if self._is_even else None
        self.line(f"{percent_of(share)}%: {what}", amount, left=left)

    def _new_pace(self) -> Pace:
        return Pace(" for this part" if self._in_parts else "")

    def _is_new_work(self, share: float, count: Count | None) -> bool:
        """Whether another kind of work has begun, whose pace has nothing to do with that of the work before.

        For example, reading tasks is fast, and fine-tuning on them slow.
        """
        if count is not None and count.unit != self._count.unit:
            return True
        is_less = share < self._share or (count is not None and count.done < self._count.done)
        return self._in_parts and is_less

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
    """Return a report that also prints a line for each new step, where no bar shows the step."""
    last = ""

    def report_line(share: float, what: str, count: Count | None = None, /) -> None:
        nonlocal last
        if what != last and not (console.is_terminal or console.is_jupyter):
            print_plain(console, f"{what} …")
        last = what
        report(share, what, count)

    return report_line


class _StandardError:
    """Standard error while a bar is shown: the bar is stopped when others write, such as the bar of a download."""

    def __init__(self, stream: TextIO, bars: progress.Progress) -> None:
        self._stream = stream
        self._bars = bars

    @property
    def rich_proxied_file(self) -> TextIO:
        """The real stream, which rich's consoles look up by this name; the bar itself is written there."""
        return self._stream

    def write(self, text: str) -> int:
        """Take the bar off the screen, and write; the next report brings it back."""
        self._bars.stop()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
