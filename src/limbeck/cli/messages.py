"""Output of the commands: results on standard output, all else on standard error."""

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import typer
from rich.console import Console
from rich.text import Text

from limbeck.core.blocks import Block
from limbeck.core.console_blocks import console as console_blocks
from limbeck.core.escaping import TerminalConsole, escape_json
from limbeck.core.logged_console import LoggedConsole, append_lines
from limbeck.errors import LimbeckError, OutputError, RecipeError

Q = TypeVar("Q")
PIPED_WIDTH = 160
"""Columns of a table in a file or a pipe, which has no width."""


class _ConsoleHandler(logging.Handler):
    """Writes what is logged as lines of a console, which keeps them out of its progress bars."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        print_line(f"{record.levelname.lower()}: {record.getMessage()}", self._console, style="dim")


@dataclass(frozen=True)
class Messages:
    """What a command prints beside its result, and the form of the result.

    Args:
        quiet: Print nothing but the result and errors.
        verbose: Print versions, device and choices such as kernels too.
        as_json: Print only the result, as JSON.
        log_file: A file that also gets progress, warnings and errors; None for none.
    """

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    log_file: Path | None = None

    def of(self, request: Q) -> Q:
        """Return a request whose progress goes to the console of these messages.

        Raises:
            RecipeError: for `quiet` and `verbose` together.
        """
        return replace(cast(Any, request), console=self.console())

    def console(self) -> Console:
        """Return the console of progress, and send limbeck's log to it, from now on to it alone.

        It is standard error, so that results can be piped. With `verbose` it also shows versions and device, and all
        records of the log.

        Raises:
            RecipeError: for `quiet` and `verbose` together.
        """
        if self.quiet and self.verbose:
            raise RecipeError("--quiet and --verbose contradict each other; give one of them.")
        if self.log_file is None:
            console: Console = TerminalConsole(stderr=True, quiet=self.quiet)
        else:
            console = LoggedConsole(self.log_file, stderr=True, quiet=self.quiet)
        logger = logging.getLogger("limbeck")
        # Earlier commands of this process, as in tests, have left a handler with a console of their own.
        for handler in list(logger.handlers):
            if isinstance(handler, _ConsoleHandler):
                logger.removeHandler(handler)
        logger.addHandler(_ConsoleHandler(console))
        # Warnings, such as of a damaged cache, are shown in any case.
        logger.setLevel(logging.WARNING)
        if self.verbose:
            logger.setLevel(logging.DEBUG)
            _log_machine(logger)
        return console

    def check_log_file(self, output: Any) -> None:
        """Refuse a log file in the output folder of a run, which has to be empty when the run begins.

        Args:
            output: The output folder; None where it is not known.

        Raises:
            OutputError: with the way out.
        """
        if self.log_file is None or output is None:
            return
        folder = Path(str(output)).expanduser().resolve()
        if folder in self.log_file.expanduser().resolve().parents:
            raise OutputError(
                f"--log-file '{self.log_file}' lies in the output folder '{output}', which must be empty when a "
                "run begins; give a file in another folder."
            )

    def log_error(self, error: LimbeckError) -> None:
        """Append an error, which the command line prints, to the log file."""
        if self.log_file is not None:
            append_lines(self.log_file, f"error: {error}")


def _log_machine(logger: logging.Logger) -> None:
    """Log versions, device and cores."""
    from limbeck.core.machine import hardware, versions

    machine = hardware()
    logger.info(", ".join(f"{name} {version}" for name, version in versions().items()))
    logger.info(
        f"device {machine['device']}, {machine['threads']} threads on {machine['cores']} cores of {machine['cpu']}"
    )


def result_console() -> Console:
    """Return where results go; tables are not squeezed into 80 columns where there is no terminal."""
    console = TerminalConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def print_line(text: str, console: Console | None = None, *, style: str | None = None) -> None:
    """Print text as it is: no markup is read in it, and no line is broken."""
    if console is None:
        console = result_console()
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def print_json(content: Any) -> None:
    """Print a result as JSON; numbers that JSON does not have, such as NaN, are null."""
    from limbeck.core.records import plain, text_of

    # A file name that is no text has halves of characters, which only JSON's own escapes can hold.
    typer.echo(escape_json(text_of(plain(content))).encode("utf-8", "backslashreplace").decode("utf-8"), nl=False)


def print_result(as_json: bool, content: Any, blocks: Iterable[Block], *lines: str | Text) -> None:
    """Print a result.

    Args:
        as_json: Whether it is printed as JSON, alone.
        content: The result for JSON.
        blocks: The result for a reader.
        lines: Lines below the blocks, printed as they are.
    """
    if as_json:
        print_json(content)
        return
    page = result_console()
    shown = tuple(blocks)
    if shown:
        page.print(console_blocks(*shown), highlight=False, markup=False)
    for line in lines:
        page.print(line, highlight=False, markup=False, soft_wrap=True)
