"""Status of runs, as read from their folders: the run's record, its *heartbeat* and its lock.

The heartbeat is a file that a running process writes again and again: the activity, the step, the time. The lock of the
folder tells a run that still runs from one whose process is gone.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from limbeck.core import records
from limbeck.core.blocks import duration
from limbeck.core.folder_lock import holder, holder_lives, is_locked
from limbeck.core.paths import RUN_RECORD
from limbeck.core.progress import percent_of
from limbeck.core.records import record_damage
from limbeck.core.studies import EvaluationRequest
from limbeck.errors import OutputError

Status = Literal["running", "dead", "finished", "interrupted", "failed"]
_MOST = 1e15
"""Largest number of steps or seconds that is shown; a file with a larger one is damaged."""
SILENT_AFTER = 600.0
"""Seconds without progress after which a run is called silent, whatever it does."""


@dataclass(frozen=True)
class RunStatus:
    """Status of a run, as read from its folder.

    Args:
        folder: Its folder.
        name: Its name.
        status: `running`; `dead` if its process has gone without recording an end; `finished`; `interrupted`, which can
            be resumed; `failed`.
        silent: Whether its process is alive, but has made no progress for `SILENT_AFTER` seconds.
        activity: The current activity, or the last one.
        part: The part of that activity, where it has several.
        share: The share of the part that is done, 0 to 1.
        stage: The stage and its number, such as "minilmv2 (1 of 2)"; None outside of training.
        step: Optimizer steps taken in the stage.
        steps: The number of steps of the stage.
        tokens_per_second: Valid tokens, between the last two logs.
        loss: The loss that was logged last.
        seconds_since: Seconds since the last sign of life.
        checkpoint: Step of the stage's last checkpoint.
        seconds_left: Seconds for the rest of the stage at its mean pace; None unless the run trains.
        host: Where its process runs or ran last.
        pid: Number of that process.
        ended_early: Where it was ended before its last step; None for a run that was not.
        stop: Where it was stopped by Ctrl-C or SIGTERM, and how it continues.
        problem: The reason why it failed, or the damage of its record.
    """

    folder: Path
    name: str
    status: Status
    silent: bool
    activity: str | None
    part: str | None
    share: float | None
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
    ended_early: str | None
    stop: str | None
    problem: str | None

    @property
    def shown(self) -> str:
        """The status in words: of a silent run with the time since its last update, of an early end with its place."""
        if self.ended_early is not None:
            return f"{self.status}, {self.ended_early}"
        if not self.silent or self.seconds_since is None:
            return self.status
        return f"{self.status}, no update for {duration(self.seconds_since)}"

    @property
    def place(self) -> str | None:
        """The stage; outside of training the activity, with its part, such as "evaluation: latency (40 %)"."""
        place = self.stage or self.activity
        if place is None or not self.part:
            return place
        place += f": {self.part}"
        # Some parts have no share, and stay at 0 until they are done.
        if self.share:
            place += f" ({percent_of(self.share)} %)"
        return place

    @property
    def has_recorded_end(self) -> bool:
        """Whether the run's record tells how it ended. That of a running run, or a dead one, is of an earlier time."""
        return self.status in ("finished", "interrupted", "failed")

    @property
    def process(self) -> str | None:
        """The process that works on the run, or the last one that did, in words; None where it is not known."""
        if self.pid is None:
            return None
        process = f"{self.pid} on {self.host or 'an unknown host'}"
        return process if self.status == "running" else f"{process}, ended"

    @property
    def needs_attention(self) -> bool:
        """Whether the run died or failed, or has been silent for too long."""
        return self.silent or self.status in ("dead", "failed")


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Find the runs in folders, at any depth; folders within a run are not searched.

    Raises:
        OutputError: for a folder that does not exist or holds no run.
    """
    all_runs: list[Path] = []
    for folder in folders:
        if not os.path.isdir(folder):  # noqa: PTH112 - no error for names that no file system has
            raise OutputError(f"'{folder}' is not a folder; give the folder of a run, or a folder that has runs in it.")
        runs = list(_runs_in(folder))
        if not runs:
            hint = ""
            if (Path(folder) / EvaluationRequest.FILE).is_file():
                hint = " It is an evaluation or a fine-tuning; `limbeck report` shows how far it is."
            raise OutputError(f"'{folder}' holds no run: there is no {RUN_RECORD} in this folder or below it.{hint}")
        all_runs += runs
    return list(dict.fromkeys(all_runs))


def _runs_in(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder, in alphabetical order."""
    for path, folders, files in os.walk(folder):
        # `os.walk` goes on with what is left in this list, in its order.
        folders.sort()
        if RUN_RECORD in files:
            folders.clear()
            yield Path(path)


def status_of(folder: Path, now: datetime | None = None) -> RunStatus:
    """Read the status of a run.

    Args:
        folder: The run's folder.
        now: The time at which the status is judged; the present by default.
    """
    # A file that is missing or damaged gives an empty record.
    run = records.load(records.Run, folder)
    heartbeat = records.load(records.Heartbeat, folder)
    owner = holder(folder)
    status = _judge(run, folder, owner)
    seconds_since = _seconds_since((heartbeat.time, run.updated), now or datetime.now(UTC))

    # A heartbeat may be an old one: what it says of the present holds only while the run is running.
    is_running = status == "running"
    is_training = heartbeat.activity == "training"
    is_silent = is_running and seconds_since is not None and seconds_since > SILENT_AFTER
    stage = None
    if is_training:
        stage = f"{heartbeat.stage} ({heartbeat.stage_number} of {heartbeat.stages})"
    seconds_left = None
    if is_running and is_training:
        seconds_left = _sane(heartbeat.seconds_left, float)
    host = owner.get("host")
    # A run that finished early was ended on purpose, and one that was interrupted was stopped so: neither is a problem.
    ended_early = None
    if status == "finished" and run.ended_early is not None:
        ended_early = run.ended_early.short
    stop = run.problem if status == "interrupted" else None
    problem = run.problem if stop is None else None
    # A damaged file may hold anything in place of a number; `_sane` then gives None.
    return RunStatus(
        folder=folder,
        name=folder.name if run.name is None else run.name,
        status=status,
        silent=is_silent,
        activity=heartbeat.activity,
        part=heartbeat.part,
        share=_sane(heartbeat.share, float),
        stage=stage,
        step=_sane(heartbeat.step),
        steps=_sane(heartbeat.steps),
        tokens_per_second=_sane(heartbeat.tokens_per_second, float),
        loss=_sane(heartbeat.loss, float),
        seconds_since=seconds_since,
        checkpoint=_sane(heartbeat.checkpoint),
        seconds_left=seconds_left,
        host=None if host is None else str(host),
        pid=_sane(owner.get("pid")),
        ended_early=ended_early,
        stop=stop,
        problem=problem or record_damage(folder),
    )


def _seconds_since(texts: Sequence[str | None], now: datetime) -> float | None:
    """Return the seconds since the last of some times; None where there is none."""
    times = []
    for text in texts:
        time = _parse_time(text)
        if time is not None:
            times.append(time)
    if not times:
        return None
    # The last time may lie in the future, since clocks of machines differ by a little.
    return max(0.0, (now - max(times)).total_seconds())


def _judge(run: records.Run, folder: Path, owner: dict[str, Any]) -> Status:
    """Return the status of a run.

    The record of a run whose process was killed still says "running". It runs only if a process holds the lock of its
    folder, which the system releases when the process dies.

    Args:
        run: The record of the run.
        folder: Its folder.
        owner: The note of the process that held the lock last, see `holder`.
    """
    if run.status in ("finished", "interrupted", "failed"):
        return run.status  # type: ignore[return-value]
    is_held = is_locked(folder)
    if is_held is None:
        # On a file system without locks, a process of this host can be looked up. A run of another host is believed.
        is_elsewhere = owner.get("host") not in (None, socket.gethostname())
        is_held = is_elsewhere or holder_lives(owner)
    return "running" if is_held else "dead"


def _parse_time(text: str | None) -> datetime | None:
    """Read a time of a record; None for anything else, and a time without a time zone."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if time.tzinfo is None:
        return None
    return time


def _sane(value: Any, number_type: type = int) -> Any:
    """A recorded number as a number of a type; None for anything else, and for numbers that only a damaged file has."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        return None
    is_possible = abs(value) < _MOST  # False for NaN.
    return number_type(value) if is_possible else None
