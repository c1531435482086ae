"""`limbeck recipe`: print a recipe to start from, or a recipe resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limbeck.cli.messages import print_json
from limbeck.cli.options import Json, Overrides, examples


def recipe(
    path: Annotated[Path | None, typer.Argument(help="A recipe to print with every default filled in.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented example.")] = False,
    quickstart: Annotated[bool, typer.Option("--quickstart", help="Print the recipe of the quickstart.")] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Print a commented example recipe, or a recipe with every default filled in."""
    from limbeck.core.yaml import parse_yaml
    from limbeck.errors import RecipeError
    from limbeck.recipe.load import dump_recipe, load_recipe, read_shipped

    if sum([path is not None, example, quickstart]) != 1:
        raise RecipeError("Say which recipe: --example, --quickstart, or the path of one.")
    if path is not None:
        text = dump_recipe(load_recipe(path, overrides or []))
    else:
        text = read_shipped("example" if example else "quickstart")
    if as_json:
        print_json(parse_yaml(text, "The recipe"))
    else:
        typer.echo(text, nl=False)


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    epilog = examples(
        "limbeck recipe --example > recipe.yaml",
        "limbeck recipe --quickstart",
        "limbeck recipe recipe.yaml --set seed=7 --json",
    )
    app.command(epilog=epilog, rich_help_panel=panel)(recipe)
