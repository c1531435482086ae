"""The console of a call's progress: a terminal, a notebook, or lines of limbeck's logger."""

import io
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

from rich.console import Console

from limbeck.core.escaping import TerminalConsole
from limbeck.core.progress_bars import activity
from limbeck.core.ranks import is_main

_WIDTH = 120
"""Columns of a line in the log."""
_LOOK_SECONDS = 0.2
"""Seconds between two looks at whether something is imported."""
_LONGEST_GAP = 1.0
"""Seconds between two imports after which no more are expected."""
_IMPORT_FILE = "<frozen importlib._bootstrap>"
"""Name of the file of the functions by which Python imports a module."""


class _LogLines(io.TextIOBase):
    """A file whose lines are records of limbeck's logger."""

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        """Log every whole line that is not empty."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                logging.getLogger("limbeck").info("%s", line.strip())
        return len(text)


def progress_console(console: Console | None) -> Console:
    """Return the console of a call's progress.

    Of several processes of a run only the main one shows progress.

    Args:
        console: The console that the user gives, such as `Console(quiet=True)` of rich. Without one it is the terminal
            or the notebook, and elsewhere limbeck's logger.
    """
    if not is_main():
        return Console(quiet=True)
    if console is not None:
        return console
    standard_error = TerminalConsole(stderr=True)
    if standard_error.is_terminal or standard_error.is_jupyter:
        return standard_error
    return TerminalConsole(file=_LogLines(), width=_WIDTH, color_system=None)  # type: ignore[arg-type]


@contextmanager
def announcing_libraries(console: Console | None) -> Iterator[None]:
    """Show a bar in a notebook while the code of the context imports PyTorch, which takes seconds.

    On the command line `limbeck.cli.start_notice` says so.

    Args:
        console: The console that the user gives; see `progress_console`.
    """
    shown_on = progress_console(console)
    if not shown_on.is_jupyter or "torch" in sys.modules:
        yield
        return
    notice = _ImportNotice(shown_on)
    sys.meta_path.insert(0, notice)
    try:
        yield
    finally:
        if notice in sys.meta_path:  # The code of the context may have replaced the list.
            sys.meta_path.remove(notice)
        notice.end()


class _ImportNotice:
    """A finder of modules that finds none: Python asks it for each module that is imported, so it sees PyTorch's.

    Args:
        console: Where its bar is shown, once.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._importing_thread = threading.get_ident()
        self._depth_before = _import_depth(self._importing_thread)
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Show the bar if PyTorch is imported, and find nothing."""
        if name == "torch" and self._thread is None:
            self._thread = threading.Thread(target=self._show, name="limbeck imports", daemon=True)
            self._thread.start()
        return None

    def _show(self) -> None:
        """Show the bar until nothing was imported for a while: other libraries follow PyTorch, with gaps."""
        last_import = time.monotonic()
        with activity(self._console, "loading PyTorch and other libraries"):
            while time.monotonic() - last_import < _LONGEST_GAP and not self._has_ended.wait(_LOOK_SECONDS):
                if _import_depth(self._importing_thread) > self._depth_before:
                    last_import = time.monotonic()

    def end(self) -> None:
        """Take the bar away, if it is there."""
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()


def _import_depth(thread: int) -> int:
    """Return how many functions of Python's import a thread is in; 0 where it imports nothing."""
    depth = 0
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FILE:
            depth += 1
        frame = frame.f_back
    return depth
