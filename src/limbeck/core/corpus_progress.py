"""Progress of a corpus in the making: a bar for each of its steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rich import progress
from rich.console import Console
from rich.filesize import decimal

from limbeck.core.progress import Count, Rate
from limbeck.core.progress_bars import RATE_COLUMN, Bars, ClockColumn, TimeLeft

StepListener: TypeAlias = Callable[[str, int, int | None], None]
"""Receives a step of the corpus, how much of it is done, and of how much, if that is known."""


@dataclass
class _StepBar:
    """The bar of a step, its rate, and when it began."""

    task: progress.TaskID
    rate: Rate
    began: float


class CorpusProgress(Bars):
    """A progress callback for `build_corpus`: a bar for each step.

    Its base draws the bars on a terminal or in a notebook. Anywhere else these are off, and the base prints a line of
    progress from time to time.

    Args:
        console: The console.
        listener: Receives the progress too.
    """

    def __init__(self, console: Console, listener: StepListener | None = None) -> None:
        amount = progress.TextColumn("{task.fields[amount]}", style="progress.download")
        super().__init__(console, amount, RATE_COLUMN, ClockColumn())
        self._listener = listener
        self._step_bars: dict[str, _StepBar] = {}

    def __call__(self, step: str, done: int, total: int | None, unit: str, /) -> None:
        """Show the progress of a step.

        Args:
            step: The step in words; a new one gets a new bar.
            done: How much is done.
            total: How much there is to do; None where that is not known.
            unit: What is counted, such as `documents`; empty where nothing is.
        """
        now = time.monotonic()
        if step not in self._step_bars:
            task = self.bars.add_task(step, total=total, amount="", rate="")
            self._step_bars[step] = _StepBar(task, Rate(), now)
            self.begin_step(step)
        bar = self._step_bars[step]

        # A step without a unit counts nothing, such as waiting for another process.
        amount = ""
        rate = ""
        if unit:
            amount = describe_amount(done, total, unit)
            rate = bar.rate.per_time(Count(done, unit), now)
        self.bars.update(bar.task, completed=done, total=total, amount=amount, rate=rate)
        if done:
            left = None
            if total is not None:
                seconds_left = (now - bar.began) * (total - done) / done
                left = TimeLeft(seconds_left)
            # For a console without bars, and for a log file. Most calls print no line, since one came just now.
            self.line(f"{step}: {amount}", rate, left=left)
        if self._listener is not None:
            self._listener(step, done, total)


def describe_amount(done: int, total: int | None, unit: str) -> str:
    """Return the finished amount, for example `3,000 of 12,000 rows` or `1.2 GB of 3.4 GB`."""
    if unit == "bytes":
        return decimal(done) if total is None else f"{decimal(done)} of {decimal(total)}"
    return f"{done:,} {unit}" if total is None else f"{done:,} of {total:,} {unit}"
