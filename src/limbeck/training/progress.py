"""A progress bar with loss, tokens per second and time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_SECONDS_BETWEEN_LINES = 30.0


class _TokenRateColumn(ProgressColumn):
    """Shows valid tokens per second."""

    def render(self, task: Task) -> Text:
        rate = task.fields.get("rate", 0.0)
        return Text(f"{rate:,.0f} tokens/s" if rate else "… tokens/s", style="progress.data.speed")


class ProgressReporter(TrainerCallback):
    """Reports a stage's progress on a console.

    Args:
        title: The stage's name.
        console: Where to write.
    """

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._progress: Progress | None = None
        self._task: Any = None
        self._previous: tuple[float, float] | None = None
        self._last_line = 0.0
        self._started = 0.0
        self._first_step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar."""
        self._started = time.monotonic()
        self._first_step = state.global_step
        if not state.is_world_process_zero or not self._console.is_terminal:
            return
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("loss {task.fields[loss]}"),
            _TokenRateColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task(
            self._title, total=state.max_steps, completed=state.global_step, loss="…", rate=0.0
        )
        self._progress.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar."""
        if self._progress is not None:
            self._progress.update(self._task, completed=state.global_step)

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
        if self._progress is not None:
            self._progress.update(self._task, loss=f"{logs['loss']:.4f}", rate=rate)
        elif rate and state.is_world_process_zero and now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            done = state.global_step - self._first_step
            left = (now - self._started) / max(done, 1) * (state.max_steps - state.global_step)
            self._console.print(
                f"{self._title}: step {state.global_step}/{state.max_steps}, loss {logs['loss']:.4f}, "
                f"{rate:,.0f} tokens/s, {left / 60:.1f} min left",
                highlight=False,
            )

    def close(self) -> None:
        """Close the bar, also after an error."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self.close()
