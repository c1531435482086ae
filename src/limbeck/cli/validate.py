"""`limbeck validate`: check a recipe without loading weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.messages import print_json, print_line
from limbeck.cli.options import Json, Overrides, examples


def validate(
    recipe: Annotated[Path, typer.Argument(help="The recipe (YAML).")],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Check a recipe against the configurations of its models; no weight and no text is loaded."""
    from limbeck.api import validate as check
    from limbeck.recipe.plan import summarise

    lines = summarise(check(recipe, overrides or []))
    if as_json:
        print_json(dict(lines))
        return
    for name, text in lines.items():
        print_line(f"{name}: {text}")
    print_line("The recipe is valid.", style="green")


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    epilog = examples("limbeck validate recipe.yaml --set student.shape=4x312", "limbeck validate recipe.yaml --json")
    app.command(epilog=epilog, rich_help_panel=panel)(validate)
