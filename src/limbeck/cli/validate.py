"""`limbeck validate`: check a recipe without loading weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from limbeck.cli.shared_options import Json, Overrides


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
        typer.echo(json.dumps(dict(lines), indent=2))
        return
    console = Console()
    for name, text in lines.items():
        console.print(f"{name}: {text}", highlight=False, markup=False, soft_wrap=True)
    console.print("The recipe is valid.", style="green")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example:  limbeck validate recipe.yaml --set student.shape=4x312")(validate)
