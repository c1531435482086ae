"""One run at a time in an output folder: a lock that the system drops with its process, whatever ends it.

A POSIX record lock (`fcntl`), which unlike `flock` is not inherited by worker processes: a worker that outlives a
killed run for a moment does not keep the next one out. NFS servers pass such locks on to other machines. They belong to
a process and go as soon as it closes any descriptor of the file, so nothing here opens a lock file of its own process.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from limbeck.core.files import read_json
from limbeck.errors import OutputError

LOCK = ".run.lock"
_TAKEN = {errno.EACCES, errno.EAGAIN}
_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05

# What this process wrote into the locks it has, by path. A forked process has the entries, but neither id nor lock.
_held: dict[Path, dict[str, Any]] = {}
_held_guard = threading.Lock()


class FolderLock:
    """Holds a run's folder for this process, as a context.

    Args:
        folder: The run's folder; it exists.

    Raises:
        OutputError: on entering, if another run has the folder, with its host, process and since when; or if the lock
            file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = (folder / LOCK).resolve()
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        with _held_guard:
            if _is_ours(self._folder):
                raise self._refusal(holder(self._folder))
            _held[self._path] = _this_process()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            if not self._lock():
                raise self._refusal(read_json(self._path))
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(_held[self._path]).encode(), 0)
        except OSError as error:
            self._release()
            raise OutputError(f"Output folder '{self._folder}' cannot be written: {error.strerror or error}.") from None
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _lock(self) -> bool:
        """Lock the file, waiting a moment for a process that is just ending; False if another one has it."""
        assert self._descriptor is not None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError as error:
                if error.errno not in _TAKEN:  # A file system without locks: go by what its last holder wrote.
                    return not holder_lives(read_json(self._path))
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)

    def _release(self) -> None:
        with _held_guard:
            _held.pop(self._path, None)
        if self._descriptor is not None:
            # This unlocks. The file stays: were it removed, two runs could lock two files of its name.
            os.close(self._descriptor)
            self._descriptor = None

    def _refusal(self, found: dict[str, Any]) -> OutputError:
        who = f"process {found.get('pid', 'unknown')} on {found.get('host', 'an unknown host')}"
        return OutputError(
            f"Output folder '{self._folder}' is in use by another run ({who}, since {found.get('since', 'unknown')}); "
            "wait for it or stop it, or choose another folder."
        )


def holder(folder: Path) -> dict[str, Any]:
    """Return the `host`, `pid`, `started` and `since` of the process that last had a folder; empty if none had."""
    return dict(_held[(folder / LOCK).resolve()]) if _is_ours(folder) else read_json(folder / LOCK)


def is_locked(folder: Path) -> bool | None:
    """Whether a run has a folder now; None where the file system cannot tell."""
    if _is_ours(folder):
        return True
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in _TAKEN else None
    finally:
        os.close(descriptor)
    return False


def holder_lives(found: dict[str, Any]) -> bool:
    """Whether the process that last had a folder is alive, as far as this host can know."""
    if found.get("host") != socket.gethostname():
        return False
    with suppress(psutil.Error, TypeError, ValueError):
        process = psutil.Process(int(found["pid"]))
        same = abs(process.create_time() - float(found["started"])) < 1.0  # Numbers of processes are used again.
        return same and process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_ours(folder: Path) -> bool:
    return _held.get((folder / LOCK).resolve(), {}).get("pid") == os.getpid()


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
