"""Status of runs, as read from their folders."""

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from limbeck.core import records
from limbeck.core.blocks import duration
from limbeck.core.folders import holder, holder_lives, is_locked
from limbeck.core.paths import RUN_RECORD
from limbeck.core.records import record_damage
from limbeck.core.studies import EvaluationRequest
from limbeck.errors import OutputError

Status = Literal["running", "dead", "finished", "interrupted", "failed"]
_MOST = 1e15
"""Of steps and seconds; a file that says more is damaged."""
SILENT_AFTER = 600.0
"""Seconds without a step after which a run that trains is called silent."""


@dataclass(frozen=True)
class RunStatus:
    """How a run stands.

    Args:
        folder: Its folder.
        name: Its name.
        status: `running`; `dead` if its process ended without a word; `finished`; `interrupted`, to be resumed;
            `failed`.
        silent: Whether its process lives and trains, but has long taken no step.
        activity: The current activity, or the last one.
        stage: The stage and its number, such as "minilmv2 (1 of 2)"; None outside of training.
        step: Optimizer steps taken in the stage.
        steps: Of so many.
        tokens_per_second: Valid tokens, between the last two logs.
        loss: Last logged.
        seconds_since: Since the last sign of life.
        checkpoint: Step of the stage's last checkpoint.
        seconds_left: For the rest of the stage at its mean pace; None unless it runs.
        host: Where its process runs or ran last.
        pid: Number of that process.
        problem: Why it failed or stopped, or that its record is damaged.
    """

    folder: Path
    name: str
    status: Status
    silent: bool
    activity: str | None
    stage: str | None
    step: int | None
    steps: int | None
    tokens_per_second: float | None
    loss: float | None
    seconds_since: float | None
    checkpoint: int | None
    seconds_left: float | None
    host: str | None
    pid: int | None
    problem: str | None

    @property
    def shown(self) -> str:
        """The status in words; of a silent run with the time since its last update."""
        if not self.silent or self.seconds_since is None:
            return self.status
        return f"{self.status}, no update for {duration(self.seconds_since)}"

    @property
    def well(self) -> bool:
        """Whether nobody needs to look after it."""
        return self.status in ("running", "finished", "interrupted") and not self.silent


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Find the runs in folders, at any depth; what is inside of a run is not looked at.

    Raises:
        OutputError: for a folder that does not exist or holds no run.
    """
    found: list[Path] = []
    for folder in folders:
        if not os.path.isdir(folder):  # noqa: PTH112 - no error for names that no file system has
            raise OutputError(f"'{folder}' is not a folder; give a run's folder, or one with runs in it.")
        runs = list(_runs_in(folder))
        if not runs:
            is_other = (Path(folder) / EvaluationRequest.FILE).is_file()
            hint = " It is an evaluation or a fine-tuning; `limbeck report` shows how far it is." if is_other else ""
            raise OutputError(f"'{folder}' holds no run: no {RUN_RECORD} is in it or below it.{hint}")
        found.extend(runs)
    return list(dict.fromkeys(found))


def _runs_in(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        if RUN_RECORD in files:
            folders.clear()
            yield Path(path)


def status_of(folder: Path, now: datetime | None = None) -> RunStatus:
    """Read how a run stands.

    Args:
        folder: The run's folder.
        now: The time to reckon from; the present by default.
    """
    run, beat, owner = records.load(records.Run, folder), records.load(records.Heartbeat, folder), holder(folder)
    status = _judge(run, folder, owner)
    signs = [time for text in (beat.time, run.updated) if (time := _time(text)) is not None]
    since = max(0.0, ((now or datetime.now(UTC)) - max(signs)).total_seconds()) if signs else None
    in_training = beat.activity == "training"
    running = status == "running"
    return RunStatus(
        folder=folder,
        name=run.name if run.name is not None else folder.name,
        status=status,
        silent=running and in_training and since is not None and since > SILENT_AFTER,
        activity=beat.activity,
        stage=f"{beat.stage} ({beat.stage_number} of {beat.stages})" if in_training else None,
        **{name: _sane(getattr(beat, name)) for name in ("step", "steps", "checkpoint")},
        **{name: _sane(getattr(beat, name), float) for name in ("tokens_per_second", "loss")},
        seconds_since=since,
        seconds_left=_sane(beat.seconds_left, float) if running and in_training else None,
        host=None if owner.get("host") is None else str(owner["host"]),
        pid=_sane(owner.get("pid")),
        problem=run.problem or record_damage(folder),
    )


def _judge(run: records.Run, folder: Path, owner: dict[str, Any]) -> Status:
    """Tell a run that runs from one whose process is gone: by the lock, which no dead process has."""
    if run.status in ("finished", "interrupted", "failed"):
        return run.status  # type: ignore[return-value]
    locked = is_locked(folder)
    if locked is None:  # A file system without locks: on this host ask for the process, of another believe the record.
        locked = owner.get("host") not in (None, socket.gethostname()) or holder_lives(owner)
    return "running" if locked else "dead"


def _time(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _sane(value: Any, kind: type = int) -> Any:
    """A number that can be shown; None for any that a whole file would not have."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return kind(value) if is_number and abs(value) < _MOST else None
