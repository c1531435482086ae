"""Callbacks that report on a stage as it trains: its progress bar, the run's heartbeat, and its log on disk."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import TextColumn
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core import progress_bars, records
from limbeck.core.files import atomic_text
from limbeck.core.paths import LOG
from limbeck.core.progress import Tick, amount_of
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.log_file import log_lines

_COLUMNS = (
    "{task.completed}/{task.total}",
    "{task.fields[loss]}",
    "[progress.data.speed]{task.fields[rate]}",
)
_WITHOUT_STEPS = ("eval_", "train_", "development_")
"""Prefixes of keys in a log that is not of training steps: of an evaluation, of the end, or of development rows."""


def _count_steps(steps: int) -> float:
    """Return the work of so many steps where every step takes about as long."""
    return float(steps)


class _Begin(NamedTuple):
    """Time and step at which this process began to train."""

    time: float
    step: int


class _Logged(NamedTuple):
    """Seconds of the steps up to a log, and the tokens that were trained on by then."""

    seconds: float
    tokens: float


class ProgressReporter(TrainerCallback):
    """Reports a stage's progress: by a bar, or plain lines where there is no terminal, and by the run's heartbeat.

    Args:
        title: The stage's name.
        console: The console.
        heartbeat: The run's heartbeat; None for a training outside of a run.
        **stage_fields: Further fields of the heartbeat: the number of the stage (`stage_number`), and how many stages
            there are (`stages`).

    Attributes:
        work_until: Takes a number of steps, and returns the work of the stage from its beginning up to that step, in
            any unit. The time that is left is estimated by it. By default each step is the same work; a loader of rows
            of several lengths counts longer rows as more work, and the stage then puts its function here.
    """

    def __init__(self, title: str, console: Console, heartbeat: Heartbeat | None = None, **stage_fields: int) -> None:
        self._title = title
        self._console = console
        # A heartbeat without a folder writes nothing.
        self._heartbeat = heartbeat or Heartbeat(folder=None)
        self._stage_fields = stage_fields
        # The work from the beginning of the stage up to a step. The trainer's loader may replace it later.
        self.work_until: Callable[[int], float] = _count_steps
        # The bar and the stage's line in it, while this process trains and is the main one; else None.
        self._bars: progress_bars.Bars | None = None
        self._task: Any = None
        # As the bar and the lines show them; empty before the first logs. A short stage may have only one.
        self._loss = ""
        self._rate = ""
        self._loss_step = 0
        self._begin = _Begin(time=0.0, step=0)
        self._last_log: _Logged | None = None
        self._arguments: Any = None
        # Time of the measurements by this process, and the steps that they were made at.
        self._measuring_seconds = 0.0
        self._measured_steps: set[int] = set()
        self._step = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Open the bar, and begin the stage in the heartbeat, in the main process alone."""
        self._begin = _Begin(time.monotonic(), state.global_step)
        self._last_log = None
        self._arguments = args
        if not state.is_world_process_zero:
            return
        # A stage that begins at a later step than 0 was resumed from the checkpoint of that step.
        step = state.global_step
        checkpoint: int | None = None
        if step > 0:
            checkpoint = step
            line = f"{self._title}: continues at step {step:,} of {state.max_steps:,}"
            progress_bars.print_plain(self._console, line)

        # The bar begins and ends in different calls, so it is no `with` block; `close` stops it.
        columns = [TextColumn(column) for column in _COLUMNS]
        self._bars = progress_bars.Bars(self._console, *columns, progress_bars.ClockColumn(), at_once=True)
        self._task = self._bars.bars.add_task(self._title, total=state.max_steps, completed=step, loss="", rate="")
        self._bars.__enter__()
        # The first step compiles the model, if the recipe says so, which takes minutes.
        compiling = "compiling the model" if args.torch_compile else ""
        self._bars.line(f"{self._title}: step {step}/{state.max_steps}", compiling)
        self._heartbeat.begin(
            "training",
            stage=self._title,
            **self._stage_fields,
            step=step,
            steps=state.max_steps,
            checkpoint=checkpoint,
        )

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar, and write the step and the time that is left into the heartbeat."""
        self._step = state.global_step
        if self._bars is not None:
            self._bars.bars.update(self._task, completed=state.global_step)
            self._show_line(state)
            self._heartbeat.beat(step=state.global_step, seconds_left=round(self._seconds_left(state), 1))

    def _show_line(self, state: TrainerState) -> None:
        """Set the line of progress, for an output that is no terminal."""
        assert self._bars is not None
        parts = [f"{self._title}: step {state.global_step}/{state.max_steps}"]
        # Loss and rate are known from the first and the second log on. Empty parts are left out.
        loss = self._loss
        if loss and self._loss_step != state.global_step:
            loss += f" at step {self._loss_step}"
        parts += [loss, self._rate]
        left = None
        if state.global_step < state.max_steps:
            left = progress_bars.TimeLeft(self._seconds_left(state), "{minutes:.1f} min left")
        self._bars.line(*parts, left=left)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        """Show loss and rate of the steps since the last log.

        Tokens are counted on the device. The trainer reads them to the host only when it logs, so the rate is known
        only then.
        """
        # Logs of an evaluation come here too, and have no training steps to show.
        has_steps = not any(key.startswith(_WITHOUT_STEPS) for key in logs)
        if self._bars is None or "tokens" not in logs or not has_steps:
            return
        rate = self._tokens_per_second(_Logged(logs["seconds"], logs["tokens"]))
        fields: dict[str, Any] = {"loss": logs.get("loss")}
        if rate is not None:
            fields["tokens_per_second"] = round(rate, 1)
        self._heartbeat.beat(**fields)

        self._loss = f"loss {logs['loss']:.4f}" if "loss" in logs else ""
        self._loss_step = state.global_step
        # There is no rate before the second log, nor where no tokens were added.
        self._rate = f"{rate:,.0f} tokens/s" if rate else ""
        self._bars.bars.update(self._task, loss=self._loss, rate=self._rate)
        self._show_line(state)

    def _tokens_per_second(self, log: _Logged) -> float | None:
        """Return the rate since the last log, and remember this one; None without a time between two logs."""
        last_log = self._last_log
        self._last_log = log
        if last_log is None:
            return None
        seconds = log.seconds - last_log.seconds
        if seconds <= 0:
            return None
        return (log.tokens - last_log.tokens) / seconds

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the new checkpoint into the heartbeat."""
        if state.is_world_process_zero:
            self._heartbeat.beat(now=True, checkpoint=state.global_step, checkpoint_time=records.timestamp())

    @contextmanager
    def activity(self, what: str) -> Iterator[Tick]:
        """Show work other than steps, which may take long: before, between or after them.

        Args:
            what: The work in words, such as "held-out loss".

        Yields:
            A function that shows how much is done. It is a sign of life in the heartbeat too.
        """
        title = f"{self._title}: {what}"
        self._heartbeat.beat(now=True)
        if self._bars is None:
            with progress_bars.activity(self._console, title) as show:
                yield self._heartbeat.with_beats(show)
            return

        # While steps are trained, their bar shows the work in place of the stage's title.
        step_bars = self._bars

        def show_text(text: str) -> None:
            # Loss and rate are of the steps before this work, and a terminal of 80 columns has no room for them.
            step_bars.bars.update(self._task, description=text, loss="", rate="")
            step_bars.line(text)

        def show_amount(done: int, total: int, unit: str, /) -> None:
            amount = amount_of(done, total, unit)
            show_text(f"{title}: {amount}" if amount else title)

        show_text(title)
        begin = time.monotonic()
        yield self._heartbeat.with_beats(show_amount)
        self._measuring_seconds += time.monotonic() - begin
        self._measured_steps.add(self._step)
        # An error in the work does not get here, so that the bar still names the work that failed.
        step_bars.bars.update(self._task, description=self._title, loss=self._loss, rate=self._rate)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Close the bar."""
        self.close()

    def close(self) -> None:
        """Close the bar, also after an error."""
        if self._bars is not None:
            self._bars.__exit__()
            self._bars = None

    def _seconds_left(self, state: TrainerState) -> float:
        """Return the time for the rest of the stage, at the mean pace since this process began to train.

        The steps and the measurements between them have a pace each. Otherwise a process that began shortly before a
        measurement would count it as the time of its few steps. Before the first measurement its time is not known.
        """
        work_done = self.work_until(state.global_step)
        work_left = self.work_until(state.max_steps) - work_done
        # This process may have begun at a later step than 0, from a checkpoint. The maximum avoids a division by 0.
        work_of_process = max(work_done - self.work_until(self._begin.step), 1)
        seconds_of_steps = time.monotonic() - self._begin.time - self._measuring_seconds
        seconds_left = seconds_of_steps / work_of_process * work_left
        if self._measured_steps:
            seconds_a_measurement = self._measuring_seconds / len(self._measured_steps)
            seconds_left += seconds_a_measurement * self._measurements_left(state)
        return seconds_left

    def _measurements_left(self, state: TrainerState) -> int:
        """Return how many measurements are left after a step: one in each interval, and one at the last step."""
        strategy = self._arguments.eval_strategy
        if strategy == "no":
            return 0
        interval = state.eval_steps
        if strategy == "epoch":
            interval = math.ceil(state.max_steps / max(state.num_train_epochs, 1))
        # A measurement at this very step is still to come.
        intervals_over = (state.global_step - 1) // interval
        return math.ceil(state.max_steps / interval) - intervals_over


class LiveLog(TrainerCallback):
    """Adds every entry to `log.jsonl` as it is logged; the end of the stage writes the file whole.

    The last step is logged too, so that a stage of fewer steps than `logging_steps` has a loss.

    Args:
        folder: The stage's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        # Whether the file has all entries so far. At first it may hold entries of an earlier process, for steps after
        # the checkpoint that this process resumed from; these steps are trained again.
        self._is_complete = False

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a log at the last step; a step that is logged anyway is logged once."""
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the newest entry; at first write all entries anew."""
        if not state.is_world_process_zero:
            return
        can_append = self._is_complete
        # It stays False if the write fails, as on a full disk. The next log then writes all entries anew.
        self._is_complete = False
        # A run does not fail because its log cannot be written: its checkpoints have the entries too.
        with suppress(OSError):
            if can_append:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(log_lines(state.log_history[-1:]))
            else:
                atomic_text(self._path, log_lines(state.log_history), durable=False)
            self._is_complete = True
