"""A progress bar with loss, tokens per second and time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.core.progress import Bars

_COLUMNS = (
    "{task.completed}/{task.total}", "loss {task.fields[loss]}", "[progress.data.speed]{task.fields[rate]} tokens/s"
)  # fmt: skip


class ProgressReporter(TrainerCallback):
    """Reports a stage's progress on a console.

    Args:
        title: The stage's name.
        console: The console.
    """

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._bars: Bars | None = None
        self._task: Any = None
        self._previous: tuple[float, float] | None = None
        self._started = 0.0
        self._first_step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar."""
        self._started = time.monotonic()
        self._first_step = state.global_step
        if not state.is_world_process_zero:
            return
        left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
        self._bars = Bars(self._console, *map(TextColumn, _COLUMNS), left, at_once=True)
        done = state.global_step
        self._task = self._bars.bars.add_task(self._title, total=state.max_steps, completed=done, loss="…", rate="…")
        self._bars.__enter__()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar."""
        if self._bars is not None:
            self._bars.bars.update(self._task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show loss and rate of the steps since the last log."""
        if not logs or "loss" not in logs:
            return
        now, tokens = time.monotonic(), logs.get("tokens", 0.0)
        rate = 0.0
        if self._previous is not None and now > self._previous[0]:
            rate = (tokens - self._previous[1]) / (now - self._previous[0])
        self._previous = (now, tokens)
        if self._bars is None:
            return
        loss = f"{logs['loss']:.4f}"
        self._bars.bars.update(self._task, loss=loss, rate=f"{rate:,.0f}" if rate else "…")
        if rate:
            done = state.global_step - self._first_step
            left = (now - self._started) / max(done, 1) * (state.max_steps - state.global_step)
            step = f"{self._title}: step {state.global_step}/{state.max_steps}"
            self._bars.line(step, f"loss {loss}", f"{rate:,.0f} tokens/s", f"{left / 60:.1f} min left")

    def close(self) -> None:
        """Close the bar, also after an error."""
        if self._bars is not None:
            self._bars.bars.stop()
            self._bars = None

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self.close()
