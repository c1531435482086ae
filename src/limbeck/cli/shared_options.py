"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value: --set stages.0.training.learning_rate=1e-4"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the output folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the output folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def progress_console(quiet: bool) -> Console:
    """Progress goes to standard error, so that results can be piped."""
    return Console(stderr=True, quiet=quiet)


def parse_numbers(option: str, text: str) -> list[int]:
    """Read whole numbers above 0, separated by commas."""
    from limbeck.errors import RecipeError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise RecipeError(f"{option} '{text}' has to be whole numbers above 0, separated by commas: 128,512.")
    return [int(part) for part in parts]
