"""`limbeck recipe`: print a recipe to start from, or a recipe resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.shared_options import Overrides


def recipe(
    path: Annotated[Path | None, typer.Argument(help="A recipe to print with every default filled in.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented example.")] = False,
    quickstart: Annotated[bool, typer.Option("--quickstart", help="Print the recipe of the quickstart.")] = False,
    overrides: Overrides = None,
) -> None:
    """Print a commented example recipe, or a recipe with every default filled in."""
    from limbeck.errors import RecipeError
    from limbeck.recipe.load import dump_recipe, load_recipe
    from limbeck.recipe.shipped import read_shipped

    if sum([path is not None, example, quickstart]) != 1:
        raise RecipeError("Say which recipe: --example, --quickstart, or the path of one.")
    if path is not None:
        typer.echo(dump_recipe(load_recipe(path, overrides or [])), nl=False)
    else:
        typer.echo(read_shipped("example" if example else "quickstart"), nl=False)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example:  limbeck recipe --example > recipe.yaml")(recipe)
