"""Recipes that come with the package."""

from importlib.resources import files

from limbeck.errors import RecipeError, suggestion

EXAMPLES = ("text", "task")
"""Examples: distilled on text, and on text and then for a task."""


def read_example(name: str = "text") -> str:
    """Return the text of an example, by its name in `EXAMPLES`.

    Raises:
        RecipeError: for another name.
    """
    if name not in EXAMPLES:
        raise RecipeError(f"No example '{name}'.{suggestion(name, EXAMPLES)}")
    return read_shipped(f"example_{name}")


def read_shipped(name: str) -> str:
    """Return the text of a shipped recipe: `quickstart`, or `example_` with the name of an example."""
    return files("limbeck.recipe").joinpath("shipped_recipes", f"{name}.yaml").read_text(encoding="utf-8")
