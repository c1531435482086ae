"""A run's sign of life: a small file beside `run.json`, written as the run gets on and by nothing else.

No thread writes it, which would go on when the loop hangs: its age says how long ago the run last got somewhere, and
the folder's lock whether the process lives.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.core.files import HEARTBEAT, write_atomically

_SECONDS_BETWEEN = 5.0


class Heartbeat:
    """Writes what a run is at.

    Args:
        folder: The run's folder.
        seconds_between: Least time between two writes of the same activity.
        writes: Whether this process writes; of several one does.
    """

    def __init__(self, folder: Path, seconds_between: float = _SECONDS_BETWEEN, *, writes: bool = True) -> None:
        self._writes = writes
        self._path = folder / HEARTBEAT
        self._seconds_between = seconds_between
        self._written = -seconds_between
        self._fields: dict[str, Any] = {}

    def begin(self, activity: str, **fields: Any) -> None:
        """Say what the run is at from now on.

        Args:
            activity: `corpus`, `models`, `training` or `evaluation`.
            **fields: More of it.
        """
        self._fields = {"activity": activity, **fields}
        self._write()

    def beat(self, *, now: bool = False, **fields: Any) -> None:
        """Say how far it is; written if the last time is long enough ago.

        Args:
            now: Write in any case.
            **fields: What is new.
        """
        self._fields.update(fields)
        if now or time.monotonic() - self._written >= self._seconds_between:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if not self._writes:
            return
        text = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **self._fields}, indent=2)
        with suppress(OSError):  # No run fails for want of a sign of life; it only looks older.
            write_atomically(self._path, text + "\n", durable=False)


@dataclass(frozen=True)
class StagePlace:
    """Which of the run's stages one is.

    Args:
        name: Its name.
        number: From 1.
        stages: How many there are.
    """

    name: str
    number: int
    stages: int


class TrainingHeartbeat(TrainerCallback):
    """Beats with the steps of a stage.

    Args:
        heartbeat: The run's.
        place: Which stage it is.
    """

    def __init__(self, heartbeat: Heartbeat, place: StagePlace) -> None:
        self._heartbeat = heartbeat
        self._place = place
        self._began = (0.0, 0)  # Time and step.
        self._last_log: tuple[float, float] | None = None  # Time and tokens.

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin the stage."""
        self._began, self._last_log = (time.monotonic(), state.global_step), None
        if state.is_world_process_zero:
            self._heartbeat.begin(
                "training",
                stage=self._place.name,
                stage_number=self._place.number,
                stages=self._place.stages,
                step=state.global_step,
                steps=state.max_steps,
                checkpoint=state.global_step or None,
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Beat."""
        if state.is_world_process_zero:
            began, first = self._began
            left = (time.monotonic() - began) / (state.global_step - first) * (state.max_steps - state.global_step)
            self._heartbeat.beat(step=state.global_step, seconds_left=round(left, 1))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the rate since the last log: tokens are counted on the device, and read only here."""
        if not state.is_world_process_zero or not logs or "tokens" not in logs:
            return
        if any(name.startswith(("eval_", "train_")) for name in logs):
            return  # An evaluation or the end: no steps since the last log.
        now, before = time.monotonic(), self._last_log
        self._last_log = (now, logs["tokens"])
        fields: dict[str, Any] = {"loss": logs.get("loss")}
        if before is not None and now > before[0]:
            fields["tokens_per_second"] = round((logs["tokens"] - before[1]) / (now - before[0]), 1)
        self._heartbeat.beat(**fields)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note the checkpoint."""
        if state.is_world_process_zero:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            self._heartbeat.beat(now=True, checkpoint=state.global_step, checkpoint_time=at)
