"""A stage's progress on the console and in the run's heartbeat: loss, tokens per second and time left."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core.progress import Bars
from limbeck.training.record import Heartbeat, timestamp

_COLUMNS = (
    "{task.completed}/{task.total}", "loss {task.fields[loss]}", "[progress.data.speed]{task.fields[rate]} tokens/s"
)  # fmt: skip


class ProgressReporter(TrainerCallback):
    """Reports a stage's progress: by a bar, or plain lines where there is no terminal, and by the run's heartbeat.

    Args:
        title: The stage's name.
        console: The console.
        heartbeat: The run's; None for a training outside of a run.
        **place: Further fields of the heartbeat: which of the run's stages it is.
    """

    def __init__(self, title: str, console: Console, heartbeat: Heartbeat | None = None, **place: int) -> None:
        self._title = title
        self._console = console
        self._heartbeat = heartbeat or Heartbeat(None)
        self._place = place
        self._bars: Bars | None = None
        self._task: Any = None
        self._began = (0.0, 0)  # Time and step.
        self._last_log: tuple[float, float] | None = None  # Time and tokens.

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Open the bar, and begin the stage in the heartbeat."""
        self._began, self._last_log = (time.monotonic(), state.global_step), None
        if not state.is_world_process_zero:
            return
        left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
        self._bars = Bars(self._console, *map(TextColumn, _COLUMNS), left, at_once=True)
        done, steps = state.global_step, state.max_steps
        self._task = self._bars.bars.add_task(self._title, total=steps, completed=done, loss="…", rate="…")
        self._bars.__enter__()
        place = {"stage": self._title, **self._place}
        self._heartbeat.begin("training", **place, step=done, steps=steps, checkpoint=done or None)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar, and beat."""
        if self._bars is not None:
            self._bars.bars.update(self._task, completed=state.global_step)
            self._heartbeat.beat(step=state.global_step, seconds_left=round(self._seconds_left(state), 1))

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        """Show loss and rate of the steps since the last log: tokens are counted on the device, and read only here."""
        # A log of an evaluation or of the end has no steps behind it.
        if self._bars is None or "tokens" not in logs or any(key.startswith(("eval_", "train_")) for key in logs):
            return
        at, before, rate = time.monotonic(), self._last_log, None
        self._last_log = (at, logs["tokens"])
        fields: dict[str, Any] = {"loss": logs.get("loss")}
        if before is not None and at > before[0]:
            rate = (logs["tokens"] - before[1]) / (at - before[0])
            fields["tokens_per_second"] = round(rate, 1)
        self._heartbeat.beat(**fields)
        loss = f"{logs['loss']:.4f}" if "loss" in logs else "…"
        self._bars.bars.update(self._task, loss=loss, rate=f"{rate:,.0f}" if rate else "…")
        if rate:
            step = f"{self._title}: step {state.global_step}/{state.max_steps}"
            left = f"{self._seconds_left(state) / 60:.1f} min left"
            self._bars.line(step, f"loss {loss}", f"{rate:,.0f} tokens/s", left)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note the checkpoint."""
        if state.is_world_process_zero:
            self._heartbeat.beat(now=True, checkpoint=state.global_step, checkpoint_time=timestamp())

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Close the bar."""
        self.close()

    def close(self) -> None:
        """Close the bar, also after an error."""
        if self._bars is not None:
            self._bars.bars.stop()
            self._bars = None

    def _seconds_left(self, state: TrainerState) -> float:
        """Return the time for the rest of the stage at its mean pace."""
        began, first = self._began
        done = max(state.global_step - first, 1)
        return (time.monotonic() - began) / done * (state.max_steps - state.global_step)
