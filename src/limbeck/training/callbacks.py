"""Callbacks that report on a stage as it trains: its progress bar, the run's heartbeat, and its log on disk."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core import progress_bars, records
from limbeck.core.files import atomic_text
from limbeck.core.paths import LOG
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.log_file import log_lines

_COLUMNS = (
    "{task.completed}/{task.total}",
    "loss {task.fields[loss]}",
    "[progress.data.speed]{task.fields[rate]} tokens/s",
)
_WITHOUT_STEPS = ("eval_", "train_", "development_")
"""Prefixes of the keys of a log that has no training steps behind it: of an evaluation, or of the end."""


class _Begin(NamedTuple):
    """Time and step at which this process began to train."""

    time: float
    step: int


class _Logged(NamedTuple):
    """Time of a log, and the tokens that were trained on by then."""

    time: float
    tokens: float


class ProgressReporter(TrainerCallback):
    """Reports a stage's progress: by a bar, or plain lines where there is no terminal, and by the run's heartbeat.

    Args:
        title: The stage's name.
        console: The console.
        heartbeat: The run's heartbeat; None for a training outside of a run.
        **place: Further fields of the heartbeat: which of the run's stages it is.

    Attributes:
        work_until: Returns the work that is done after so many steps, in any unit; the steps themselves, unless some
            take longer than others.
    """

    def __init__(self, title: str, console: Console, heartbeat: Heartbeat | None = None, **place: int) -> None:
        self._title = title
        self._console = console
        self._heartbeat = heartbeat or Heartbeat(None)
        self._place = place
        self.work_until: Callable[[int], float] = float
        self._bars: progress_bars.Bars | None = None
        self._task: Any = None
        self._begin = _Begin(time=0.0, step=0)
        self._last_log: _Logged | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Open the bar, and begin the stage in the heartbeat."""
        self._begin = _Begin(time.monotonic(), state.global_step)
        self._last_log = None
        if not state.is_world_process_zero:
            return
        step = state.global_step
        columns = [TextColumn(column) for column in _COLUMNS]
        time_left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
        self._bars = progress_bars.Bars(self._console, *columns, time_left, at_once=True)
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
        """Show loss and rate of the steps since the last log.

        Tokens are counted on the device; the host reads them only for a log, and so does this.
        """
        has_steps = not any(key.startswith(_WITHOUT_STEPS) for key in logs)
        if self._bars is None or "tokens" not in logs or not has_steps:
            return
        rate = self._tokens_per_second(logs["tokens"])
        fields: dict[str, Any] = {"loss": logs.get("loss")}
        if rate is not None:
            fields["tokens_per_second"] = round(rate, 1)
        self._heartbeat.beat(**fields)

        loss = f"{logs['loss']:.4f}" if "loss" in logs else "…"
        if not rate:
            self._bars.bars.update(self._task, loss=loss, rate="…")
            return
        self._bars.bars.update(self._task, loss=loss, rate=f"{rate:,.0f}")
        step = f"{self._title}: step {state.global_step}/{state.max_steps}"
        time_left = ""
        if state.global_step < state.max_steps:
            time_left = f"{self._seconds_left(state) / 60:.1f} min left"
        self._bars.line(step, f"loss {loss}", f"{rate:,.0f} tokens/s", time_left)

    def _tokens_per_second(self, tokens: float) -> float | None:
        """Return the rate since the last log, and remember this one; None at the first log.

        Args:
            tokens: Tokens that were trained on so far.
        """
        last_log = self._last_log
        self._last_log = _Logged(time.monotonic(), tokens)
        if last_log is None:
            return None
        seconds = self._last_log.time - last_log.time
        if seconds <= 0:
            return None
        return (tokens - last_log.tokens) / seconds

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
        """Return the time for the rest of the stage at the mean pace of this process."""
        work = self.work_until(state.global_step)
        work_of_process = max(work - self.work_until(self._begin.step), 1)
        seconds_per_work = (time.monotonic() - self._begin.time) / work_of_process
        return seconds_per_work * (self.work_until(state.max_steps) - work)


class LiveLog(TrainerCallback):
    """Adds every entry to `log.jsonl` as it is logged; the end of the stage writes the file whole.

    The last step is logged too, so that a stage of fewer steps than `logging_steps` has a loss.

    Args:
        folder: The stage's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        # Whether the file has all entries so far. An earlier process may have logged steps that are done again.
        self._is_complete = False

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a log at the last step; a step that is logged anyway is logged once."""
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the newest entry; at first write all entries anew."""
        if not state.is_world_process_zero:
            return
        appends = self._is_complete
        # Until the entry is written: after an error, such as a full disk, all is written anew.
        self._is_complete = False
        # No run fails for want of a log that its checkpoints have too.
        with suppress(OSError):
            if appends:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(log_lines(state.log_history[-1:]))
            else:
                atomic_text(self._path, log_lines(state.log_history), durable=False)
            self._is_complete = True
