"""The console of a call's progress: a terminal, a notebook, or lines of limbeck's logger."""

import io
import logging

from rich.console import Console

from limbeck.core.escaping import TerminalConsole
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
