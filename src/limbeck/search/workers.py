"""Who works on a study and is still alive, so that the trials of a killed worker are tried again.

Optuna's own heartbeat is for databases only, not for journal files, and beats only inside `Study.optimize`, not for a
generation that is asked for and evaluated as a whole. So every worker keeps a sign of life in the study's user
attributes, in any storage, and names itself in the trials that it takes. A running trial is lost when its worker has
ended, when its process is gone (seen from the same machine), or when the sign of life stands still for `MISSED_BEATS`
intervals of the watcher's own clock; clocks of different machines are never compared.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.core.ranks import broadcasting_tasks, connect, is_main, process_count, raised_on_all_ranks
from limbeck.errors import RecipeError
from limbeck.models.quiet import quiet
from limbeck.recipe.plan import RunPlan
from limbeck.training.proxy import follow_proxy

WORKER = "worker"
"""User attribute of a trial: the name of the worker that took it."""
MISSED_BEATS = 4
BEAT_SECONDS = 15.0


def worker_key(name: str) -> str:
    """Return the study attribute that holds a worker's sign of life."""
    return f"{WORKER} {name}"


def machine() -> str:
    """Return host, boot and PID namespace: processes of equal values can check each other's process ids."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            source = Path(path)
            parts.append(str(source.readlink()) if source.is_symlink() else source.read_text().strip())
    return " ".join(parts)


@contextmanager
def sign_of_life(study: Study, interval: float = BEAT_SECONDS) -> Iterator[str]:
    """Keep a worker's sign of life in a study, and yield the worker's name.

    Args:
        study: The study that the worker works on.
        interval: Seconds between beats; after `MISSED_BEATS` of them without one, others take the worker for dead.
    """
    worker, stopped = uuid.uuid4().hex[:12], Event()
    sign: dict[str, Any] = {
        "machine": machine(),
        "process": os.getpid(),
        "started": psutil.Process().create_time(),
        "interval": interval,
        "beat": 0,
        "ended": False,
    }

    def keep_beating() -> None:
        while not stopped.wait(interval):
            sign["beat"] += 1
            # A storage that is out of reach for a moment costs one beat. If it stays away, telling a value says so.
            with suppress(Exception):
                study.set_user_attr(worker_key(worker), sign)

    study.set_user_attr(worker_key(worker), sign)
    thread = Thread(target=keep_beating, name=f"sign of life {worker}", daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        stopped.set()
        thread.join()
        study.set_user_attr(worker_key(worker), sign | {"ended": True})


class LostTrials:
    """Watches a study for running trials whose worker is dead, and fails them.

    Args:
        study: The study.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._seen: dict[int, tuple[object, float]] = {}

    def fail(self, watcher: str | None = None) -> list[FrozenTrial]:
        """Fail the trials that are lost by now, and return them as they were.

        A worker that only seemed dead cannot tell their values any more; the one whose call failed a trial, and no
        other, has it in the returned list.

        Args:
            watcher: The worker that looks, if it is one; every trial that it has taken has its name.
        """
        lost = []
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        attributes = self._study.user_attrs  # After the trials: who takes one has given a sign of life before.
        signs = {name: sign for name, sign in attributes.items() if name.startswith(worker_key(""))}
        others = [sign for name, sign in signs.items() if watcher is None or name != worker_key(watcher)]
        others_are_dead = bool(signs) and all(_is_dead(sign) for sign in others)
        self._seen = {trial.number: self._seen[trial.number] for trial in running if trial.number in self._seen}
        for trial in running:
            sign = attributes.get(worker_key(trial.user_attrs.get(WORKER, "")))
            if self._is_lost(trial.number, sign) or (sign is None and others_are_dead):
                with suppress(UpdateFinishedTrialError, ValueError):  # another worker was first
                    self._study.tell(trial.number, state=TrialState.FAIL)
                    lost.append(trial)
        return lost

    def _is_lost(self, number: int, sign: dict[str, Any] | None) -> bool:
        if sign is not None and _is_dead(sign):
            return True
        beat = None if sign is None else sign["beat"]
        now = time.monotonic()
        last_beat, since = self._seen.setdefault(number, (beat, now))
        if last_beat != beat:
            self._seen[number] = (beat, now)
            return False
        # A trial without a worker's name was taken by one that was killed before it could write it: where others live,
        # nobody knows by which.
        interval = BEAT_SECONDS if sign is None else float(sign["interval"])
        return now - since > MISSED_BEATS * interval


def _is_dead(sign: dict[str, Any]) -> bool:
    """Whether a worker has ended, or its process is seen to be gone."""
    return sign["ended"] or is_gone(sign)


def is_gone(sign: dict[str, Any]) -> bool:
    """Return whether a worker's process is seen to be gone; on another machine it cannot be seen."""
    if sign["machine"] != machine():
        return False
    try:
        process = psutil.Process(sign["process"])
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - sign["started"]) > 1
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


@contextmanager
def searched_together(plan: RunPlan, *, share: float, workers: int, tasks: bool = False) -> Iterator[bool]:
    """Take part in a search: the main process searches in this context, the others have trained with it before.

    Args:
        plan: The recipe that candidates are variants of.
        share: Share of the text.
        workers: Processes that the search would start itself.
        tasks: Whether candidates are fine-tuned on tasks, which one process does.

    Returns:
        Whether this is the process that searches, and writes the result.

    Raises:
        RecipeError: for both kinds of processes at once, and for tasks.
    """
    launched = process_count()
    if launched > 1 and (workers > 1 or tasks):
        problem = (
            f"--workers {workers} starts processes, but a launcher has started {launched} that share every batch; "
            "leave out one of the two."
            if workers > 1
            else (
                f"--tasks are fine-tuned by one process, but a launcher has started {launched}; leave the tasks out, "
                "so that held-out text decides, or use --workers instead of a launcher."
            )
        )
        raise raised_on_all_ranks(RecipeError(problem))
    connect()
    if not is_main():
        with quiet():
            follow_proxy(plan, share=share)
        yield False
        return
    with broadcasting_tasks() if launched > 1 else nullcontext():
        yield True
