"""`limbeck schema`: the JSON schema of recipes."""

from __future__ import annotations

import typer

from limbeck.cli.messages import print_json
from limbeck.cli.options import examples


def schema() -> None:
    """Print the JSON schema of recipes, from which editors complete and check them."""
    from limbeck.recipe.schema import recipe_schema

    print_json(recipe_schema())


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command(epilog=examples("limbeck schema > recipe.schema.json"), rich_help_panel=panel)(schema)
