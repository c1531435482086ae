"""The console of a call's progress: a terminal, a notebook, or lines of limbeck's logger."""

import io
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

from rich.console import Console

from limbeck.core.escaping import TerminalConsole
from limbeck.core.progress_bars import print_plain
from limbeck.core.ranks import is_main

_WIDTH = 120
"""Columns of a line in the log."""


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
    """Print a line in a notebook if the code of the context imports PyTorch, which takes seconds.

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


class _ImportNotice:
    """A finder of modules that finds none: Python asks it for each module that is imported, so it sees PyTorch's.

    Args:
        console: Where its line is printed, once.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._has_printed = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Print the line if PyTorch is imported, and find nothing."""
        if name == "torch" and not self._has_printed:
            self._has_printed = True
            print_plain(self._console, "loading PyTorch and other libraries …")
        return None
