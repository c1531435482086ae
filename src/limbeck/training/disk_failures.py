"""Failures of saving, such as a full disk, and of loading, in one line that says what is still there."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

from safetensors import SafetensorError

from limbeck.core.disk_space import free_bytes, megabytes
from limbeck.errors import OutputError, TrainingError
from limbeck.training.run_checkpoints import has_saved

# No space, over quota, file too large, device error, read-only file system, stale handle of a network disk.
_DISK_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE}


@contextmanager
def saving(what: str, folder: Path) -> Iterator[None]:
    """Turn a failure of writing into a line for the user.

    Args:
        what: Name of what is written, at the beginning of a sentence.
        folder: The folder that is written to.

    Raises:
        TrainingError: with the reason, the room on the disk and the way out, for an error of the system, of
            safetensors or of PyTorch.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        problem = f"{what} could not be written to '{folder}': {_reason(error)}"
        raise TrainingError(problem + _way_out(folder)) from error


@contextmanager
def loading(checkpoint: Path) -> Iterator[None]:
    """Turn a failure of reading a checkpoint whose hashes are right into a line for the user.

    Raises:
        OutputError: for files of another version, of another student, or that hold code.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError) as error:
        raise OutputError(
            f"Checkpoint '{checkpoint}' cannot be resumed: {_first_line(error)}. Remove it to continue from the "
            "one before it, or start again with --overwrite."
        ) from error


def disk_problem(error: BaseException, folder: Path) -> str | None:
    """Describe a failure of the disk that a run writes to; None for an error of another cause.

    Args:
        error: The error that ended the run.
        folder: The run's folder.
    """
    if not isinstance(error, OSError) or error.errno not in _DISK_FAILURES:
        return None
    return f"A file of the run could not be written or read: {os.strerror(error.errno)}" + _way_out(folder)


def _reason(error: BaseException) -> str:
    """Return the reason of the first error: PyTorch raises a second one as it closes a file that was not written."""
    first = error
    while first.__context__ is not None and not isinstance(first, OSError):
        first = first.__context__
    if isinstance(first, OSError) and first.errno is not None:
        return os.strerror(first.errno)
    return _first_line(first)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class where it has none."""
    message = str(error)
    if not message:
        return type(error).__name__
    return message.splitlines()[0].rstrip(".")


def _way_out(folder: Path) -> str:
    """Return the end of a message: the room on the disk, what is saved, and the way out."""
    room = ""
    free = free_bytes(folder)
    if free is not None:
        room = f" ({megabytes(free)} free)"
    if has_saved(folder):
        return (
            f"{room}. What was saved before is intact; make room or repair the disk, and continue with the same "
            "command and --resume."
        )
    return (
        f"{room}. Nothing of the training was saved before; make room or repair the disk, and begin again with the "
        "same command and --resume."
    )
