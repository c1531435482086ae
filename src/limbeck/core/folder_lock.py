"""The lock of a run's folder, which only one process at a time holds.

The lock is a POSIX record lock (`fcntl`) on a file in the folder. Unlike `flock`, it is not inherited by worker
processes, so that a worker that outlives a killed run for a moment does not keep the next run out. It also works
between machines that share a folder over NFS. Such a lock is released as soon as its process closes *any* descriptor of
the file. This is why nothing here opens a lock file that this process holds.

The file holds a *note* in JSON: host, number and start of the process that held the lock last. The note stays when the
lock is released.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from limbeck.core.files import atomic_text, read_json
from limbeck.core.folders import writing
from limbeck.core.paths import LOCK, PROCESS_NOTE
from limbeck.errors import OutputError

_TAKEN = {errno.EACCES, errno.EAGAIN}
"""Numbers of the errors for a lock that another process holds."""

_PATIENCE_SECONDS = 2.0
"""Time in which a process that is about to end gives up its lock."""

_PAUSE_SECONDS = 0.05
"""Time from one try to get a lock to the next."""

# The notes of the locks that this process holds, by path. A forked process inherits the entries but not the locks: its
# own process id differs from that in the note.
_held: dict[Path, dict[str, Any]] = {}

_held_guard = threading.Lock()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a run's folder for this process, and write into the lock file which process holds it.

    Args:
        folder: The run's folder; it exists.

    Raises:
        OutputError: on entering, if another run has the folder, with its host, process and since when; or if the lock
            file cannot be written.
    """
    path = folder.resolve() / LOCK
    # The lock is one between processes: the system gives a process a lock that it holds already. So a second run in
    # this process is refused here, by the folders in `_held`.
    with _held_guard:
        if _is_ours(folder):
            raise _refusal(folder, holder(folder))
        _held[path] = _this_process()
    descriptor: int | None = None
    try:
        # A link in the place of the file is refused (O_NOFOLLOW), since the file that it leads to would be emptied.
        with writing(folder):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            if not _lock(descriptor, path):
                raise _refusal(folder, read_json(path))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_held[path]).encode(), 0)
        yield
    finally:
        with _held_guard:
            try:
                # Closing the file releases the lock. The file is not removed: a run that has just opened it would lock
                # the removed file, and the next run a new file of the same name.
                if descriptor is not None:
                    os.close(descriptor)
            finally:
                # Only now may another run of this process have the folder. Had it locked the file before, closing this
                # descriptor would have released that lock too.
                _held.pop(path, None)


def _lock(descriptor: int, path: Path) -> bool:
    """Lock the file and return True, or False if another process keeps the lock for longer than it takes to end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            # Any other error means a file system without locks. There the folder is free unless its last holder lives.
            if error.errno not in _TAKEN:
                return not holder_lives(read_json(path))
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)


def _refusal(folder: Path, lock: dict[str, Any]) -> OutputError:
    """Return the error for a folder that another run holds; `lock` is the note of its process."""
    process = f"process {lock.get('pid', 'unknown')} on {lock.get('host', 'an unknown host')}"
    return OutputError(
        f"Output folder '{folder}' is in use by another run ({process}, since {lock.get('since', 'unknown')}); "
        "wait for it or stop it, or choose another folder."
    )


def holder(folder: Path) -> dict[str, Any]:
    """Return the note of the process that held a folder last: its `host`, `pid`, `started` and `since`.

    It is empty where no process has held the folder.
    """
    if _is_ours(folder):
        return dict(_held[folder.resolve() / LOCK])
    return read_json(folder / LOCK)


def is_locked(folder: Path) -> bool | None:
    """Whether a process holds a folder now; None where the file system has no locks."""
    if _is_ours(folder):
        return True
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return True
        return None
    finally:
        os.close(descriptor)
    return False


def holder_lives(lock: dict[str, Any]) -> bool:
    """Whether the process that held a folder last is alive, as far as this host can know.

    Args:
        lock: The note that this process left in the lock file: its `host`, its `pid` and when it `started`.

    Returns:
        False also for a process on another host, about which nothing is known here.
    """
    if lock.get("host") != socket.gethostname():
        return False
    with suppress(psutil.Error, TypeError, ValueError):
        process = psutil.Process(int(lock["pid"]))
        # The system uses process ids again, but not with the same start.
        is_same = abs(process.create_time() - float(lock["started"])) < 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def process_note(folder: Path) -> Iterator[None]:
    """Leave a note of this process in a folder while it works there.

    It keeps no other process out of the folder. Of several processes, the note is of the one that began last.

    Args:
        folder: An existing folder.

    Raises:
        OutputError: on entering, if the note cannot be written.
    """
    path = folder / PROCESS_NOTE
    note = _this_process()
    with writing(folder):
        atomic_text(path, json.dumps(note), shared=True)
    try:
        yield
    finally:
        is_ours = read_json(path) == note
        if is_ours:
            with suppress(OSError):
                path.unlink()


def is_worked_in(folder: Path) -> bool:
    """Whether a process of this host works in a folder now, by its `process_note`."""
    return holder_lives(read_json(folder / PROCESS_NOTE))


def _is_ours(folder: Path) -> bool:
    """Whether this process holds a folder; in a forked process the note has the id of its parent."""
    return _held.get(folder.resolve() / LOCK, {}).get("pid") == os.getpid()


def _this_process() -> dict[str, Any]:
    """Return the note of this process."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
