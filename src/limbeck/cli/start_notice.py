"""The lines while a command starts: importing its libraries takes seconds, or a minute on a busy machine.

They end before anything else is printed. This module is imported before all others, and imports nothing that takes
time.
"""

import atexit
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, BinaryIO, TextIO

SLOW_COMMANDS = frozenset(
    (
        *("quickstart", "finetune", "teach", "distill", "finish", "compare", "search"),
        *("evaluate", "benchmark", "inspect", "export", "trim", "report", "validate", "recipe", "doctor"),
    )
)
"""Commands that import large libraries: `report` imports those that draw its pictures, all others import PyTorch."""
_FIRST_SECONDS = 0.3
"""Seconds up to which a start is not worth a line."""
_LINE_SECONDS = 8.0
"""Seconds between two lines, as `limbeck.core.progress_bars.LINE_SECONDS`."""
_TERMINAL_SECONDS = 1.0
"""Seconds between two changes of the line in a terminal."""
_WATCH_SECONDS = 0.2
"""Seconds between two looks at whether a line is due."""
_STARTING = "limbeck is starting"
_LOADING = "loading PyTorch and other libraries"
_CLEAR_REST = "\x1b[K"
"""Clears a terminal's line from the cursor on."""
_USUAL_COLUMNS = 80
"""Columns of a terminal that does not say how many it has."""


def is_quiet(arguments: Sequence[str]) -> bool:
    """Return whether arguments ask for the result alone: `--quiet`, `--json`, or a `q` among short options as in `-vq`.

    The arguments are not parsed yet.
    """
    return any(re.fullmatch(r"--quiet|--json|-v*q[vq]*", argument) for argument in arguments)


def announce_start(arguments: Sequence[str]) -> None:
    """Have this process say that it starts, until it prints something else, unless it is quiet or prints its help.

    Args:
        arguments: The arguments of the command line.
    """
    # The arguments are not parsed yet: a name of a command may stand anywhere among them.
    is_slow = not SLOW_COMMANDS.isdisjoint(arguments)
    asks_for_help = "--help" in arguments or "-h" in arguments
    is_closed = sys.stderr is None
    if not is_slow or asks_for_help or is_quiet(arguments) or is_closed or "torch" in sys.modules:
        return
    _Notice().begin()


class _Notice:
    """The lines of a start. A thread prints them, until the command prints something or the process ends.

    Python asks each finder in `sys.meta_path` for a module that is imported. The notice is the first of them, so that
    it sees the import of torch; it finds no module. It also stands before standard output and standard error, so that
    it sees what is printed first.
    """

    def __init__(self) -> None:
        self._stderr = sys.stderr
        self._streams: dict[str, _FirstWrite] = {}
        has_cursor = sys.stderr.isatty() and os.name != "nt" and os.environ.get("TERM") not in (None, "dumb", "unknown")
        self._rewrites_line = has_cursor
        self._seconds_between = _TERMINAL_SECONDS if has_cursor else _LINE_SECONDS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_when_due, name="limbeck start", daemon=True)
        self._words = _STARTING
        self._words_began = time.monotonic()

    def begin(self) -> None:
        """Watch imports and what is printed, and print lines from now on."""
        # A command may end without having printed anything.
        atexit.register(self.end)
        sys.meta_path.insert(0, self)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None:
                self._streams[name] = _FirstWrite(stream, self)
                setattr(sys, name, self._streams[name])
        self._thread.start()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Have the line changed if PyTorch is imported, and find nothing."""
        if name == "torch" and self._words == _STARTING:
            # The time comes first: as soon as the thread sees the new words, it may need the time.
            self._words_began = time.monotonic()
            self._words = _LOADING
        return None

    def end(self) -> None:
        """Print nothing from now on, and leave imports and streams as they were."""
        self._ended.set()
        # A line that is being printed comes first.
        self._thread.join()
        # The notice may be ended a second time: when the process ends, or by something that kept one of its streams and
        # writes to it later.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name, stream in self._streams.items():
            # A library may have put a stream of its own in this place, which writes to ours. That one stays.
            if getattr(sys, name) is stream:
                setattr(sys, name, stream.stream)

    def _print_when_due(self) -> None:
        """Print new words at once, and the same words with their seconds from time to time."""
        printed = ""
        last_time = time.monotonic()
        self._ended.wait(_FIRST_SECONDS)
        while not self._ended.wait(_WATCH_SECONDS):
            now = time.monotonic()
            words = self._words
            if words != printed:
                self._print(f"{words} …")
            elif now - last_time >= self._seconds_between:
                self._print(f"{words} (for {now - self._words_began:.0f} s so far)")
            else:
                continue
            printed = words
            last_time = now
        if printed and self._rewrites_line:
            # The next output begins on a line of its own.
            self._write("\n")

    def _print(self, line: str) -> None:
        """Print a line, in a terminal in the place of the line before.

        A C library may have written a line in between. The cursor stands below that line, which therefore stays.
        """
        if not self._rewrites_line:
            self._write(f"{line}\n")
            return
        # The last column stays free: a terminal goes on to the next line after it.
        shown = line[: self._columns() - 1]
        self._write(f"\r{shown}{_CLEAR_REST}")

    def _columns(self) -> int:
        """Return how many columns the terminal has."""
        try:
            columns = os.get_terminal_size(self._stderr.fileno()).columns
        except (OSError, ValueError):
            return _USUAL_COLUMNS
        return columns or _USUAL_COLUMNS

    def _write(self, text: str) -> None:
        """Write to standard error, if it can be written."""
        try:
            self._stderr.write(text)
            self._stderr.flush()
        except (OSError, ValueError):
            # Standard error is closed, or cannot show the text.
            return


class _FirstWrite:
    """A stream before which the notice stands: it ends when something is written.

    Args:
        stream: The stream.
        notice: The notice.
    """

    def __init__(self, stream: TextIO, notice: _Notice) -> None:
        self.stream = stream
        self._notice = notice

    def write(self, text: str) -> int:
        """End the notice, and write."""
        if text:
            self._notice.end()
        return self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """End the notice, and write."""
        self._notice.end()
        self.stream.writelines(lines)

    @property
    def buffer(self) -> BinaryIO:
        """The stream of bytes below, after the end of the notice, which does not see what is written there."""
        self._notice.end()
        return self.stream.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
