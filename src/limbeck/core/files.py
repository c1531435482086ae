"""Files and folders that are whole or not there, whatever kills their writer."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.errors import OutputError

CLOCK_TICK_NS = 10**8
"""Longest tick of a file system's clock, in nanoseconds. A file that is changed in the tick in which it was read keeps
its times, so that the change would not be seen."""


class FileState(NamedTuple):
    """Numbers of which some change when a file does.

    Size and time of modification alone may stay: archives with fixed times, `cp -p` and `rsync -t` set them.

    Attributes:
        size: Its size in bytes.
        inode: Its number in the file system, which a file that is put in its place does not share.
        modified_ns: The time of the last change of its content, in nanoseconds; programs may set it.
        changed_ns: The time of the last change of any kind, in nanoseconds; programs cannot set it.
    """

    size: int
    inode: int
    modified_ns: int
    changed_ns: int

    def is_settled(self, now_ns: int) -> bool:
        """Whether any change of the file from `now_ns` on will change its state."""
        return self.changed_ns + CLOCK_TICK_NS < now_ns


def change_state(stat: os.stat_result) -> FileState:
    """Return the state of a file, by which a later change is seen."""
    return FileState(stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)


@contextmanager
def atomic_file(path: Path, *, durable: bool = True, shared: bool = False) -> Iterator[Path]:
    """Yield the path of a file to write, which then replaces another: readers see the old or the new, never a part.

    Args:
        path: The file to replace.
        durable: Wait until the new file is on the disk, so that it also outlives a loss of power.
        shared: Whether several processes may write it at once, each aside under a unique name.

    Raises:
        OutputError: if a folder is in its place.
    """
    if shared:
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    else:
        partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        if durable:
            sync(partial)
        partial.replace(path)
    except BaseException as error:
        # On a full disk the half-written file would keep room from what comes after.
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, IsADirectoryError):
            raise OutputError(
                f"'{path}' is a folder, but a file is to be written there; move or rename the folder."
            ) from None
        raise


def atomic_text(path: Path, text: str, *, durable: bool = True, shared: bool = False) -> None:
    """Replace a file's text, see `atomic_file`.

    Args:
        path: The file.
        text: Its new text, written as UTF-8.
        durable: Wait until it is on the disk.
        shared: Whether several processes may write it at once.
    """
    with atomic_file(path, durable=durable, shared=shared) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the folder of a file that is written within the context.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}.") from None


@contextmanager
def atomic_folder(folder: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield an empty folder that replaces another at the end, or is removed if the block raises.

    What a killed process left aside is removed first.

    Args:
        folder: The folder to replace; its parents are made.
        shared: Whether several processes may write it at once, each aside under a unique name.

    Raises:
        OutputError: if a file is in its place.
    """
    name = folder.name
    if shared:
        _remove_leftovers(folder)
        # A machine that shares the disk may have a process of the same number.
        name = f"{folder.name}.{socket.gethostname()}.{os.getpid()}"
    partial = folder.with_name(f"{name}.partial")
    replaced = folder.with_name(f"{name}.replaced")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        # Where the folder is a link, only the link goes.
        if folder.is_dir() or folder.is_symlink():
            folder.rename(replaced)
        partial.rename(folder)
    except NotADirectoryError:
        if not folder.is_file():
            raise
        raise OutputError(f"'{folder}' is a file, but a folder is to be made there; move or rename the file.") from None
    finally:
        for leftover in (partial, replaced):
            with suppress(OSError):
                remove(leftover)


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes of this machine were writing aside for a shared folder when they were killed."""
    # Importing it takes a while, which few commands need.
    import psutil

    prefix = f"{folder.name}.{socket.gethostname()}."
    for path in folder.parent.glob("*.partial"):
        number = path.name.removeprefix(prefix).removesuffix(".partial")
        is_of_this_folder = path.name.startswith(prefix) and number.isdecimal()
        if is_of_this_folder and not psutil.pid_exists(int(number)):
            with suppress(OSError):
                remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing if there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; empty where there is none or it cannot be read."""
    try:
        # A pipe or a device would never end.
        if not path.is_file():
            return {}
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def check_writable(path: Path, folder: Path) -> None:
    """Make the folder of an output and write into it, before the work whose result it is for.

    Permissions alone do not tell, so a file is really written.

    Args:
        path: The value of `--output`, for the message.
        folder: The folder of its files.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror or error}.") from None
