"""How a run stands, from what lies in its folder: nothing of it is loaded, changed or held up."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from limbeck.core.files import HEARTBEAT, RECORD, read_json, read_record, record_damage
from limbeck.core.folders import holder, holder_lives, is_locked
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
        activity: What it is at, or was at last.
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
        if not _is_folder(folder):
            raise OutputError(f"'{folder}' is no folder; give a run's folder, or one with runs in it.")
        runs = list(_runs_in(folder))
        if not runs:
            raise OutputError(f"'{folder}' holds no run: no {RECORD} is in it or below.")
        found.extend(runs)
    return list(dict.fromkeys(found))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # A name that is too long for the system.
        return False


def _runs_in(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        if RECORD in files:
            folders.clear()
            yield Path(path)


def status_of(folder: Path, now: datetime | None = None) -> RunStatus:
    """Read how a run stands.

    Args:
        folder: The run's folder.
        now: The time to reckon from; the present by default.
    """
    record, beat, owner = read_record(folder), read_json(folder / HEARTBEAT), holder(folder)
    status = _judge(record, folder, owner)
    signs = [time for text in (beat.get("time"), record.get("updated")) if (time := _time(text)) is not None]
    since = max(0.0, ((now or datetime.now(UTC)) - max(signs)).total_seconds()) if signs else None
    in_training = beat.get("activity") == "training"
    running = status == "running"
    return RunStatus(
        folder=folder,
        name=str(record.get("name", folder.name)),
        status=status,
        silent=running and in_training and since is not None and since > SILENT_AFTER,
        activity=_text(beat, "activity"),
        stage=f"{beat.get('stage')} ({beat.get('stage_number')} of {beat.get('stages')})" if in_training else None,
        step=_number(beat, "step", int),
        steps=_number(beat, "steps", int),
        tokens_per_second=_number(beat, "tokens_per_second", float),
        loss=_number(beat, "loss", float),
        seconds_since=since,
        checkpoint=_number(beat, "checkpoint", int),
        seconds_left=_number(beat, "seconds_left", float) if running and in_training else None,
        host=_text(owner, "host"),
        pid=_number(owner, "pid", int),
        problem=_text(record, "problem") or record_damage(folder),
    )


def _judge(record: Mapping[str, Any], folder: Path, owner: dict[str, Any]) -> Status:
    """Tell a run that runs from one whose process is gone: by the lock, which no dead process has."""
    said = record.get("status")
    if said in ("finished", "interrupted", "failed"):
        return said
    locked = is_locked(folder)
    if locked is None:  # A file system without locks: on this host ask for the process, of another believe the record.
        locked = owner.get("host") not in (None, socket.gethostname()) or holder_lives(owner)
    return "running" if locked else "dead"


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else str(value)


def _number(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        return None  # The last holds for NaN too.
    return kind(value)
