"""One attempt at a job, in a process of its own that lives or is killed."""

from __future__ import annotations

import multiprocessing
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import torch

from .events import Event, EventFile, read_events, watch
from .file_operations import FileOperations
from .job import Job

FORK = multiprocessing.get_context("fork")  # So that imports are paid once.
_MOST_SECONDS = 300.0
STRAY_SECONDS = 10.0
"""What processes have to notice that their parent is dead."""


@dataclass(frozen=True)
class Death:
    """How an attempt is to die, if it does not come to its end before.

    Args:
        seconds: After so many; None for no time.
        operation: At this file operation; 0 for none.
        victim: Whom the time kills: the `process`, a `worker` of it, or `all` at once, as when a machine is lost.
    """

    seconds: float | None = None
    operation: int = 0
    victim: str = "process"


@dataclass(frozen=True)
class Attempt:
    """What became of an attempt.

    Args:
        process: Its id, and that of its group.
        began: When, on the clock of its events.
        seconds: How long it lived.
        exit_code: Negative for a signal.
        killed: Who was killed: `process`, `worker`, `all`, or nobody.
        events: What it said.
        complaint: The last line of what it wrote to its standard error.
        kept: What was finished when a worker was killed, before the others could do anything about it.
    """

    process: int
    began: float
    seconds: float
    exit_code: int
    killed: str | None
    events: list[Event]
    complaint: str
    kept: Mapping[str, Any]

    @property
    def landed(self) -> bool:
        """Whether a kill ended it."""
        return self.killed is not None and self.exit_code != 0

    def seconds_to(self, names: frozenset[str]) -> float | None:
        """Seconds from the start to the first event of some names."""
        return next((event.at - self.began for event in self.events if event.name in names), None)


def attempt(job: Job, inputs: Path, folder: Path, notes: Path, death: Death, dice: random.Random) -> Attempt:
    """Begin a job, or go on with it, until its end or its death.

    Args:
        job: The job.
        inputs: What it reads.
        folder: Its own folder.
        notes: Where its events and its standard error go.
        death: How it is to die.
        dice: Chooses the worker that is killed.
    """
    notes.mkdir(parents=True)
    for name in ("events", "stderr"):  # It may be killed before it has said anything.
        (notes / name).touch()
    process = FORK.Process(target=_live, args=(job, inputs, folder, notes, death.operation))
    began = time.monotonic()
    process.start()
    ended = _wait(process, _MOST_SECONDS if death.seconds is None else death.seconds)
    killed, kept = None, {}
    if not ended and death.seconds is not None:
        workers = _workers(process) if death.victim == "worker" else []
        if workers:
            killed, kept = "worker", _kill_worker(process, dice.choice(workers), job, folder)
        else:
            killed = _kill(process, death.victim)
        ended = _wait(process, _MOST_SECONDS)
    if not ended:
        os.killpg(process.pid, signal.SIGKILL)
        raise RuntimeError(f"{job.name} neither ended nor died in {_MOST_SECONDS:.0f} s; see {notes}.")
    seconds = time.monotonic() - began
    process.join()
    events = read_events(notes / "events")
    if any(event.name == "dies" for event in events):
        killed = "process" if process.exitcode == -signal.SIGKILL else "worker"
    complaint = (notes / "stderr").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return Attempt(process.pid, began, seconds, process.exitcode, killed, events, "".join(complaint), kept)


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own: this one has to stay as it is for those that it forks."""
    with ProcessPoolExecutor(1, mp_context=FORK, initializer=_use_own_threads) as pool:
        return pool.submit(function, *arguments).result()


def _use_own_threads() -> None:
    """Let PyTorch leave the threads of the process that this one was forked from.

    It does so at its first use of threads. Two threads that come to it at once, as those that load a model's weights,
    can find it half done, which is an error.
    """
    torch.set_num_threads(1)


def strays(groups: list[int]) -> int:
    """Count the processes that outlive their attempts by more than `STRAY_SECONDS`; they are ended."""
    until = time.monotonic() + STRAY_SECONDS
    while (found := _living(groups)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in found:
        process.kill()
    return len(found)


def _live(job: Job, inputs: Path, folder: Path, notes: Path, operation: int) -> None:
    os.setsid()
    sys.stdout = sys.stderr = (notes / "stderr").open("w", buffering=1, encoding="utf-8")
    for descriptor in (1, 2):
        os.dup2(sys.stderr.fileno(), descriptor)
    _use_own_threads()
    os.environ["LIMBECK_CACHE"] = str(folder.parent / "cache")
    tempfile.tempdir = str(folder.parent / "temporary")
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    events = EventFile(notes / "events")
    operations = FileOperations(folder.parent, operation, events.say)
    watch(events.say)
    operations.watch()
    job.run(inputs, folder)
    events.say("end", str(operations.count))


def _wait(process: BaseProcess, seconds: float) -> bool:
    """Wait for the end of a process alone: a worker that outlives it would hold up `process.join(seconds)`."""
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _workers(process: BaseProcess) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


def _kill_worker(process: BaseProcess, worker: psutil.Process, job: Job, folder: Path) -> Mapping[str, Any]:
    """Kill a worker while the others stand still; return what was finished then."""
    os.killpg(process.pid, signal.SIGSTOP)
    kept: Mapping[str, Any] = in_child(job.kept, folder)
    worker.kill()
    os.killpg(process.pid, signal.SIGCONT)
    return kept


def _kill(process: BaseProcess, victim: str) -> str:
    """Kill a process, with all of its own or alone, which is how one without workers dies in any case."""
    if victim == "all":
        os.killpg(process.pid, signal.SIGKILL)
        return "all"
    process.kill()
    return "process"


def _living(groups: list[int]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) in groups and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        except ProcessLookupError:  # It has just ended.
            continue
    return found
