"""Output folders: made for one piece of work, taken up again by it alone, one process at a time where it locks them.

The lock is a POSIX record lock (`fcntl`), which unlike `flock` is not inherited by worker processes: a worker that
outlives a killed run for a moment does not keep the next one out. NFS servers pass such locks on to other machines.
They belong to a process and go as soon as it closes any descriptor of the file, so nothing here opens a lock file of
its own process.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from limbeck.core.files import read_json
from limbeck.core.paths import LOCK
from limbeck.errors import OutputError

_TAKEN = {errno.EACCES, errno.EAGAIN}
_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05

# What this process wrote into the locks it has, by path. A forked process has the entries, but neither id nor lock.
_held: dict[Path, dict[str, Any]] = {}
_held_guard = threading.Lock()


@dataclass(frozen=True)
class FolderKind:
    """A kind of output folder, and the record that says what a folder of it was made for.

    Attributes:
        name: For messages: "search".
        record: File name of the record.
        check: Raises `OutputError` where work of the identity asked for must not go on in a folder:
            `check(folder, saved record, identity)`; by default it may go on in any of its kind.
        way_out: For the message on a record that cannot be read.
        beside: Names of files that do not make a folder occupied.
        read: Reads the record of an occupied folder; by default JSON.
    """

    name: str
    record: str
    check: Callable[[Path, dict[str, Any], Mapping[str, Any]], None] | None = None
    way_out: str = "choose another folder"
    beside: frozenset[str] = frozenset()
    read: Callable[[Path], dict[str, Any]] | None = None

    def is_occupied(self, folder: Path) -> bool:
        """Whether a folder holds more than what a start that came to nothing leaves."""
        nothing_yet = {*self.beside, f"{self.record}.partial"}
        return folder.is_dir() and any(path.name not in nothing_yet for path in folder.iterdir())

    def look(self, folder: Path) -> dict[str, Any]:
        """Return the record of a folder of this kind, and nothing of a new or empty one; nothing is written.

        Raises:
            OutputError: if it is a file, or holds something else or a damaged record.
        """
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"Output '{folder}' is a file; give a folder.")
        return self.read_record(folder) if self.is_occupied(folder) else {}

    def read_record(self, folder: Path) -> dict[str, Any]:
        """Read the record of an occupied folder.

        Raises:
            OutputError: if there is none, or it is damaged.
        """
        if self.read is not None:
            return self.read(folder)
        path = folder / self.record
        record = read_json(path)
        if record:
            return record
        if path not in folder.iterdir():
            raise OutputError(f"Output folder '{folder}' holds no {self.name}; choose an empty or new folder.")
        raise OutputError(f"'{path}' cannot be read; {self.way_out}.")


def claim(folder: Path, kind: FolderKind, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Make an output folder, or take it up if its record is of the same identity.

    Args:
        folder: The folder.
        kind: Its kind.
        identity: What decides the results in it, plain values.

    Returns:
        The saved record; empty in a new folder, whose record the caller writes.

    Raises:
        OutputError: if it is a file, holds something else or a damaged record, was made for another identity, or
            cannot be written.
    """
    saved = kind.look(folder)
    if kind.check is not None and kind.is_occupied(folder):
        kind.check(folder, saved, identity)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return saved


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn the system's errors of writing into an output folder into one `OutputError`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None


class Difference(NamedTuple):
    """The first place where two documents differ, its keys joined by dots, and their values there."""

    place: str
    old: Any
    new: Any


def first_difference(old: Any, new: Any, place: str = "") -> Difference | None:
    """Find the first place where two documents of plain values differ, in the order of the old one."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        pairs = [(key, old.get(key), new.get(key)) for key in dict.fromkeys((*old, *new))]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = list(zip(range(len(old)), old, new, strict=True))
    elif old != new:
        return Difference(place, old, new)
    for key, old_value, new_value in pairs:
        place_below = f"{place}.{key}" if place else str(key)
        difference = first_difference(old_value, new_value, place_below)
        if difference is not None:
            return difference
    return None


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process.

    Args:
        folder: The run's folder; it exists.

    Raises:
        OutputError: on entering, if another run has the folder, with its host, process and since when; or if the lock
            file cannot be written.
    """
    path = folder.resolve() / LOCK  # A link in its place is refused, or whatever it leads to would be emptied.
    with _held_guard:
        if _is_ours(folder):
            raise _refusal(folder, holder(folder))
        _held[path] = _this_process()
    descriptor: int | None = None
    try:
        with writing(folder):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            if not _lock(descriptor, path):
                raise _refusal(folder, read_json(path))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_held[path]).encode(), 0)
        yield
    finally:
        with _held_guard:
            _held.pop(path, None)
        if descriptor is not None:
            # This unlocks. The file stays: were it removed, two runs could lock two files of its name.
            os.close(descriptor)


def _lock(descriptor: int, path: Path) -> bool:
    """Lock the file, waiting a moment for a process that is just ending; False if another one has it."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in _TAKEN:  # A file system without locks: go by its last holder's note.
                return not holder_lives(read_json(path))
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)


def _refusal(folder: Path, lock: dict[str, Any]) -> OutputError:
    process = f"process {lock.get('pid', 'unknown')} on {lock.get('host', 'an unknown host')}"
    return OutputError(
        f"Output folder '{folder}' is in use by another run ({process}, since {lock.get('since', 'unknown')}); "
        "wait for it or stop it, or choose another folder."
    )


def holder(folder: Path) -> dict[str, Any]:
    """Return the `host`, `pid`, `started` and `since` of the process that last had a folder; empty if none had."""
    return dict(_held[folder.resolve() / LOCK]) if _is_ours(folder) else read_json(folder / LOCK)


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


def holder_lives(lock: dict[str, Any]) -> bool:
    """Whether the process that last had a folder is alive, as far as this host can know.

    Args:
        lock: Its note in the lock, see `holder`.
    """
    if lock.get("host") != socket.gethostname():
        return False
    with suppress(psutil.Error, TypeError, ValueError):
        process = psutil.Process(int(lock["pid"]))
        # Numbers of processes are used again.
        is_same = abs(process.create_time() - float(lock["started"])) < 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_ours(folder: Path) -> bool:
    return _held.get(folder.resolve() / LOCK, {}).get("pid") == os.getpid()


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
