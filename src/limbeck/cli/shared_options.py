"""What the commands have in common: options, the panels of their help, its examples, and reading lists of numbers."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from limbeck.cli.completion import METHODS, complete

RUN_PANEL = "What is distilled"
TRAINING_PANEL = "Training"
MEASURING_PANEL = "Measuring"
STUDY_PANEL = "The study"
RESULT_PANEL = "Result and messages"

MOST = 1_000_000
"""The largest number in a list of sizes: above it there is no text so long and no model so wide."""

LONGEST_SECONDS = 86_400
"""The most time for a measurement: a day."""
LAST_SEED = 2**32 - 1
"""The largest seed of NumPy."""

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value: --set stages.0.training.learning_rate=1e-4"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the output folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the output folder.")]
Method = Annotated[
    str | None,
    typer.Option(
        help="Method, with all its stages; `limbeck methods` lists them.",
        rich_help_panel=RUN_PANEL,
        autocompletion=complete(METHODS),
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, cuda:1 …; auto: the accelerator where there is one.",
        rich_help_panel=MEASURING_PANEL,
        autocompletion=complete(("auto", "cpu", "cuda")),
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing but the result and errors.", rich_help_panel=RESULT_PANEL),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Say versions, device and choices such as kernels too.", rich_help_panel=RESULT_PANEL
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, alone.", rich_help_panel=RESULT_PANEL)]


def examples(*lines: str) -> str:
    """Return the end of a command's help: each example in a paragraph of its own, to be copied as it is."""
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *map(escape, lines)])


def parse_numbers(option: str, text: str) -> list[int]:
    """Read whole numbers from 1 to `MOST`, separated by commas.

    Raises:
        RecipeError: for anything else.
    """
    from limbeck.errors import RecipeError

    parts = [part.strip() for part in text.split(",")]
    # Digits are counted first: Python refuses to read thousands of them.
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and 0 < int(part) <= MOST for part in parts):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise RecipeError(f"{option} '{shown}' has to be whole numbers from 1 to {MOST:,}, by commas: 128,512.")
    return [int(part) for part in parts]
