"""Files of weights as readable as all others: safetensors keeps what it writes for its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")


def give_ordinary_mode(paths: Iterable[Path]) -> None:
    """Give files the permissions that the user's umask gives to new files; a file system without any keeps its own.

    Args:
        paths: The files.
    """
    mode = 0o666 & ~_umask()
    for path in paths:
        with suppress(OSError):
            path.chmod(mode)


def _umask() -> int:
    """Read the umask, where the system tells it without setting it: that would be seen by other threads."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
