"""Showing how far the corpus is built."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Told = Callable[[str, int, int | None], None]

_SECONDS_BETWEEN_LINES = 30.0


class _RateColumn(ProgressColumn):
    """Shows how many items are done in a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("…/s" if speed is None else f"{speed:,.3g}/s", style="progress.data.speed")


class CorpusProgress:
    """A progress callback for `build_corpus`: a bar for each step; plain lines where there is no terminal.

    Args:
        console: Where to write.
        told: Also told the step, how many items of it are done, and of how many.
    """

    def __init__(self, console: Console, told: Told | None = None) -> None:
        self._told = told
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            _RateColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}
        self._last_line = time.monotonic()

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """Report that `done` of `total` items of a step are finished."""
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total)
            self._begun[step] = time.monotonic()
            if not self._console.is_terminal:
                self._console.print(f"{step} …", highlight=False)
        self._progress.update(self._tasks[step], completed=done, total=total)
        if not self._console.is_terminal:
            self._print_line(step, done, total)
        if self._told is not None:
            self._told(step, done, total)

    def _print_line(self, step: str, done: int, total: int | None) -> None:
        """Say now and then how far a long step is."""
        now = time.monotonic()
        if now - self._last_line < _SECONDS_BETWEEN_LINES or not done:
            return
        self._last_line = now
        rate = done / max(now - self._begun[step], 1e-9)
        rest = "" if total is None else f" of {total:,}, about {(total - done) / rate:.0f} s left"
        self._console.print(f"{step}: {done:,}{rest}, {rate:,.3g}/s", highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
