"""What follows a stage as it trains: its bar, the run's heartbeat, and its log as it grows."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core import progress, records
from limbeck.core.files import atomic_text
from limbeck.core.paths import LOG
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.log_file import log_lines

_COLUMNS = (
    "{task.completed}/{task.total}",
    "loss {task.fields[loss]}",
    "[progress.data.speed]{task.fields[rate]} tokens/s",
)


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
        self.work_until: Callable[[int], float] = float
        """How much of the stage's work is done at a step, in any unit; the steps, unless some take longer."""
        self._bars: progress.Bars | None = None
        self._task: Any = None
        self._began = (0.0, 0)  # Time and step.
        self._last_log: tuple[float, float] | None = None  # Time and tokens.

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Open the bar, and begin the stage in the heartbeat."""
        self._began = (time.monotonic(), state.global_step)
        self._last_log = None
        if not state.is_world_process_zero:
            return
        step = state.global_step
        columns = [TextColumn(column) for column in _COLUMNS]
        time_left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
        self._bars = progress.Bars(self._console, *columns, time_left, at_once=True)
        self._task = self._bars.bars.add_task(self._title, total=state.max_steps, completed=step, loss="…", rate="…")
        self._bars.__enter__()
        self._heartbeat.begin(
            "training",
            stage=self._title,
            **self._place,
            step=step,
            steps=state.max_steps,
            checkpoint=step or None,
        )

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar, and beat."""
        if self._bars is not None:
            self._bars.bars.update(self._task, completed=state.global_step)
            self._heartbeat.beat(step=state.global_step, seconds_left=round(self._seconds_left(state), 1))

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        """Show loss and rate of the steps since the last log: tokens are counted on the device, and read only here."""
        # A log of an evaluation or of the end has no steps behind it.
        no_loss = ("eval_", "train_", "development_")
        if self._bars is None or "tokens" not in logs or any(key.startswith(no_loss) for key in logs):
            return
        now = time.monotonic()
        last_log = self._last_log
        self._last_log = (now, logs["tokens"])

        rate: float | None = None
        fields: dict[str, Any] = {"loss": logs.get("loss")}
        if last_log is not None:
            seconds = now - last_log[0]
            if seconds > 0:
                rate = (logs["tokens"] - last_log[1]) / seconds
                fields["tokens_per_second"] = round(rate, 1)
        self._heartbeat.beat(**fields)

        loss = f"{logs['loss']:.4f}" if "loss" in logs else "…"
        self._bars.bars.update(self._task, loss=loss, rate=f"{rate:,.0f}" if rate else "…")
        if not rate:
            return
        step = f"{self._title}: step {state.global_step}/{state.max_steps}"
        time_left = ""
        if state.global_step < state.max_steps:
            time_left = f"{self._seconds_left(state) / 60:.1f} min left"
        self._bars.line(step, f"loss {loss}", f"{rate:,.0f} tokens/s", time_left)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note the checkpoint."""
        if state.is_world_process_zero:
            self._heartbeat.beat(now=True, checkpoint=state.global_step, checkpoint_time=records.timestamp())

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
        began, first_step = self._began
        done_now = self.work_until(state.global_step)
        done_here = max(done_now - self.work_until(first_step), 1)
        seconds_a_unit = (time.monotonic() - began) / done_here
        return seconds_a_unit * (self.work_until(state.max_steps) - done_now)


class LiveLog(TrainerCallback):
    """Adds every entry to `log.jsonl` as it is logged; the end of the stage writes the file whole.

    The last step is logged too, so that a stage of fewer steps than `logging_steps` has a loss.

    Args:
        folder: The stage's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._begun = False

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a log at the last step; where it is logged anyway, it is once."""
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the newest entry; at first write all, since an earlier process may have logged what is done again."""
        if not state.is_world_process_zero:
            return
        begun = self._begun
        self._begun = False
        # No run fails for want of a log that its checkpoints have too; after a full disk all is written anew.
        with suppress(OSError):
            if begun:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(log_lines(state.log_history[-1:]))
            else:
                atomic_text(self._path, log_lines(state.log_history), durable=False)
            self._begun = True
