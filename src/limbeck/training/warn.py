"""Warnings for the user, printed in yellow."""

from collections.abc import Callable

from rich.console import Console

Warn = Callable[[str], None]
"""Receives a warning of one line."""


def warn(console: Console, line: str) -> None:
    """Print a warning of one line."""
    console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
