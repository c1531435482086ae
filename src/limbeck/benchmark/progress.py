"""Showing how far a benchmark is: a bar with the time left, or lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Report: TypeAlias = Callable[[float, str], None]
"""Is told which share of the whole is done, 0 to 1, and what is measured now."""

_SECONDS_BETWEEN_LINES = 15.0


def quietly(share: float, what: str) -> None:
    """Be told, and keep it."""


def part_of(report: Report, start: float, end: float) -> Report:
    """Return a report for a part of the whole, from `start` to `end`."""
    return lambda share, what: report(start + (end - start) * share, what)


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
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("…", total=1.0)
        self._started = self._last_line = time.monotonic()

    def __call__(self, share: float, what: str) -> None:
        """Show what is measured now."""
        self._progress.update(self._task, completed=share, description=what)
        now = time.monotonic()
        if self._console.is_terminal or now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        left = (now - self._started) * (1 - share) / share if share > 0 else None
        rest = "" if left is None else f", about {left:.0f} s left"
        self._console.print(f"{share:.0%}: {what}{rest}", highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
