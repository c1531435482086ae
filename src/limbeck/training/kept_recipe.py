"""The resolved recipe that a run's folder keeps, by which the run is resumed."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from limbeck.core import yaml
from limbeck.core.files import atomic_text
from limbeck.core.paths import RECIPE
from limbeck.errors import OutputError, RecipeError
from limbeck.recipe.load import dump_recipe
from limbeck.recipe.schema import Recipe
from limbeck.training.measured_steps import with_measured_steps


def keep_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe into a run's folder, with the numbers of steps that minutes came to.

    A resumed run does this only after its teacher and text were found to be the same.
    """
    document = with_measured_steps(folder, recipe.model_dump())
    atomic_text(folder / RECIPE, dump_recipe(Recipe.model_validate(document)))


def read_kept_recipe(folder: Path) -> dict[str, Any]:
    """Read the document of the recipe that a run's folder keeps.

    Raises:
        OutputError: if it is missing or damaged.
    """
    document = None
    with suppress(RecipeError):
        document = yaml.read_document(folder / RECIPE, RECIPE, "replace the run.")
    if not isinstance(document, dict):
        raise OutputError(
            f"The run in '{folder}' cannot be resumed, since its '{RECIPE}' is missing or damaged; start the run "
            "again with --overwrite, or choose another folder."
        )
    return document


def document_of(recipe: Recipe) -> dict[str, Any]:
    """Return the document of a recipe as `read_kept_recipe` would read it back."""
    document: dict[str, Any] = yaml.parse_yaml(dump_recipe(recipe), RECIPE)
    return document
