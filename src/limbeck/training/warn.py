"""Lines that matter, for the user."""

from collections.abc import Callable

from rich.console import Console


def warn(console: Console, line: str) -> None:
    """Print a line that matters."""
    console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)


Warn = Callable[[str], None]
"""Takes a line for the user."""
