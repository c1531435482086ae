"""Permissions of new files, by the user's umask."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")


def give_ordinary_mode(paths: Iterable[Path]) -> None:
    """Give files the permissions of new files by the user's umask: safetensors keeps its files for their owner alone.

    Args:
        paths: The files; on a file system without permissions nothing is changed.
    """
    mode = 0o666 & ~_umask()
    for path in paths:
        with suppress(OSError):
            path.chmod(mode)


def _umask() -> int:
    """Read the umask, from the system where possible: setting it would be seen by other threads."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
