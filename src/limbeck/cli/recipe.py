"""`limbeck recipe`, `validate` and `schema`: a recipe printed, resolved or checked, and the schema of all."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from limbeck.cli.messages import print_json, print_result
from limbeck.cli.options import Json, Overrides, command
from limbeck.errors import RecipeError


@command(
    "limbeck recipe --example > recipe.yaml",
    "limbeck recipe --quickstart",
    "limbeck recipe recipe.yaml --set seed=7 --json",
)
def recipe(
    path: Annotated[Path | None, typer.Argument(help="A recipe to print with every default filled in.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented example.")] = False,
    quickstart: Annotated[bool, typer.Option("--quickstart", help="Print the recipe of the quickstart.")] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Print a commented example recipe, or a recipe with every default filled in."""
    from limbeck.recipe.load import dump_recipe, load_recipe, read_shipped

    if sum([path is not None, example, quickstart]) != 1:
        raise RecipeError("Say which recipe: --example, --quickstart, or the path of one.")
    if path is not None:
        text = dump_recipe(load_recipe(path, overrides or []))
    else:
        text = read_shipped("example" if example else "quickstart")
    print_recipe(text, as_json)


def print_recipe(text: str, as_json: bool) -> None:
    """Print a recipe as it is written, or as JSON."""
    from limbeck.core.yaml import parse_yaml

    if as_json:
        print_json(parse_yaml(text, "The recipe"))
    else:
        typer.echo(text, nl=False)


@command("limbeck validate recipe.yaml --set student.shape=4x312", "limbeck validate recipe.yaml --json")
def validate(
    recipe: Annotated[Path, typer.Argument(help="The recipe (YAML).")],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Check a recipe against the configurations of its models; no weight and no text is loaded."""
    from limbeck.api import validate as check
    from limbeck.recipe.plan import summarise

    lines = summarise(check(recipe, overrides or []))
    shown = (f"{name}: {text}" for name, text in lines.items())
    print_result(as_json, dict(lines), *shown, Text("The recipe is valid.", style="green"))


@command("limbeck schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON schema of recipes, from which editors complete and check them."""
    from limbeck.recipe.schema import recipe_schema

    print_json(recipe_schema())
