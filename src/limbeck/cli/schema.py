"""`limbeck schema`: the JSON schema of recipes."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON schema of recipes, from which editors complete and check them."""
    from limbeck.recipe.json_schema import recipe_schema

    typer.echo(json.dumps(recipe_schema(), indent=2))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example:  limbeck schema > recipe.schema.json")(schema)
