"""Showing how far the corpus is built."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from limbeck.progress import Count, Rate

Told = Callable[[str, int, int | None], None]

_SECONDS_BETWEEN_LINES = 30.0


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
        if not self._console.is_terminal and done and now - self._last_line >= _SECONDS_BETWEEN_LINES:
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
