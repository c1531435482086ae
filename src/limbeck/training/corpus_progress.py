"""Showing how far the corpus is built."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

Told = Callable[[str, int, int | None], None]


class CorpusProgress:
    """A progress callback for `build_corpus`: a bar for each step, one line a step where there is no terminal.

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
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, done: int, total: int | None) -> None:
        """Report that `done` of `total` items of a step are finished."""
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total)
            if not self._console.is_terminal:
                self._console.print(f"{step} …", highlight=False)
        self._progress.update(self._tasks[step], completed=done, total=total)
        if self._told is not None:
            self._told(step, done, total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
