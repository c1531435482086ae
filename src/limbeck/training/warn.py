"""Warnings for the user, printed in yellow."""

from collections.abc import Callable

from rich.console import Console

from limbeck.core.progress_bars import print_plain

Warn = Callable[[str], None]
"""Receives a warning of one line."""


def warn(console: Console, line: str) -> None:
    """Print a warning of one line."""
    print_plain(console, line, "yellow")
