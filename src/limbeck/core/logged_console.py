"""`LoggedConsole`: a console whose lines are also appended to a file, each with its time."""

import io
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.control import Control

from limbeck.core.escaping import TerminalConsole
from limbeck.errors import OutputError, shorten_error

_WIDTH = 160
"""Columns of a table in the file."""


class LoggedConsole(TerminalConsole):
    """A console that also appends what it prints to a file; a quiet console prints nothing, and the file has it all.

    Args:
        path: The file; it is made where it does not exist, and each line is written at once.
        options: Options of `rich.console.Console`.

    Raises:
        OutputError: if the file cannot be written.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(**options)
        self._path = path
        append_lines(path, "")

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, and append the same text to the file."""
        super().print(*objects, **options)
        # Bars are drawn by control codes alone, which are no text.
        if objects and not all(isinstance(printed, Control) for printed in objects):
            text = io.StringIO()
            page = TerminalConsole(file=text, width=_WIDTH, color_system=None, force_jupyter=False)
            page.print(*objects, **options)
            self.write_lines(text.getvalue())

    def write_lines(self, text: str) -> None:
        """Append text to the file alone, as for a line that a bar shows on the screen."""
        # The file could be written when the command began. A run does not fail because its log cannot be, later.
        with suppress(OutputError):
            append_lines(self._path, text)


def append_lines(path: Path, text: str) -> None:
    """Append the lines of a text to a file, each with the present time; empty ones are left out.

    Raises:
        OutputError: if the file cannot be written.
    """
    time = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"{time} {line.rstrip()}\n" for line in text.splitlines() if line.strip()]
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(lines)
    except OSError as error:
        raise OutputError(
            f"--log-file '{path}' cannot be written: {shorten_error(error)}; give another file in a folder that exists."
        ) from None
