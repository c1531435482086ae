"""Signs of life: how the workers of a study show each other that they are alive.

Optuna's own heartbeat is for databases only, not for journal files, and beats only inside `Study.optimize`, not for a
generation that is asked for and evaluated as a whole. So every worker keeps a *sign of life* in the study's user
attributes, in any storage, and names itself in the trials that it takes. A worker is dead when it has ended, when its
process is gone (seen from the same machine), or when its sign stands still for `MISSED_BEATS` intervals of the
watcher's own clock; clocks of different machines are never compared.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
from optuna.study import Study

WORKER = "worker"
"""User attribute of a trial: the name of the worker that took it."""
BEAT_SECONDS = 15.0
"""Time between two beats of a sign of life."""
MISSED_BEATS = 4
"""Intervals without a beat after which a worker is taken for dead."""
_SAME_START_SECONDS = 1
"""Most seconds between two readings of the time at which a process was started."""


def worker_key(name: str) -> str:
    """Return the study attribute that holds a worker's sign of life."""
    return f"{WORKER} {name}"


def signs_of(attributes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the signs of life among a study's user attributes, by the attribute's name."""
    prefix = worker_key("")
    return {key: value for key, value in attributes.items() if key.startswith(prefix)}


def machine() -> str:
    """Return the host, boot and PID namespace of this process; ids of processes mean the same where all three do."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    # The namespace is a link to a name such as `pid:[4026531836]`.
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


@contextmanager
def sign_of_life(study: Study, interval: float = BEAT_SECONDS) -> Iterator[str]:
    """Keep a worker's sign of life in a study, and yield the worker's name.

    Args:
        study: The study that the worker works on.
        interval: Seconds between beats; after `MISSED_BEATS` of them without one, others take the worker for dead.
    """
    worker = uuid.uuid4().hex[:12]
    stopped = Event()
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
            # A storage that is out of reach for a moment costs one beat. If it stays so, the end of a trial raises.
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
        study.set_user_attr(worker_key(worker), {**sign, "ended": True})


def is_dead(sign: Mapping[str, Any]) -> bool:
    """Whether a worker has ended, or its process is seen to be gone."""
    return sign["ended"] or is_gone(sign)


def is_gone(sign: Mapping[str, Any]) -> bool:
    """Whether a worker's process is seen to be gone; on another machine it cannot be seen."""
    if sign["machine"] != machine():
        return False
    try:
        process = psutil.Process(sign["process"])
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        # If the process was started at another time, it is another one that has got the same number since.
        return abs(process.create_time() - sign["started"]) > _SAME_START_SECONDS
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
