"""Dying at the n-th operation that changes a file: where a kill does most harm, and where one by time seldom hits."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FSYNC = "os.fsync"
#: Audit events of operations that change files, and which of their arguments are a path and the folder it starts from.
_EVENTS = {
    "open": (0, None),
    "os.rename": (0, 2),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.mkdir": (0, 2),
    "os.truncate": (0, None),
    "os.symlink": (1, 2),
    "os.link": (1, 3),
    "shutil.rmtree": (0, 1),
    _FSYNC: (0, None),
}
_WRITES = os.O_WRONLY | os.O_RDWR


class FileOperations:
    """Counts the operations of this process that change what is in a folder, from `watch` on.

    Processes that it forks count on, each for itself.

    Args:
        folder: The folder.
        last: Number of the operation that the process does not live to do; 0 for none.
        say: Told of that operation, before it.
    """

    def __init__(self, folder: Path, last: int, say: Callable[..., None]) -> None:
        self._folder = str(folder.resolve())
        self._last = last
        self._say = say
        self.count = 0

    def watch(self) -> None:
        """Begin; there is no way back but the end of the process."""
        fsync = os.fsync

        def audited(descriptor: int) -> None:
            sys.audit(_FSYNC, descriptor)
            fsync(descriptor)

        os.fsync = audited
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or (event == "open" and not arguments[2] & _WRITES):
            return
        path = _path_of(event, arguments)
        if not path.startswith(self._folder):
            return
        self.count += 1
        if self.count == self._last:
            self._say("dies", f"{event} {Path(path).name}")
            os.kill(os.getpid(), signal.SIGKILL)


def _path_of(event: str, arguments: tuple[Any, ...]) -> str:
    """The path, absolute where the operation starts from a folder that is held open."""
    which, start = _EVENTS[event]
    path = arguments[which]
    if isinstance(path, int):
        return _open_at(path)
    folder = arguments[start] if start is not None else None
    path = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not path.startswith("/"):
        return f"{_open_at(folder)}/{path}"
    return path


def _open_at(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())
