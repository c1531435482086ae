"""Recipes: the schema, loading with overrides, and the checks across fields."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used

if TYPE_CHECKING:
    from limbeck.recipe.choosing import choose_recipe
    from limbeck.recipe.load import dump_recipe, load_recipe
    from limbeck.recipe.plan import RunPlan, plan_run
    from limbeck.recipe.schema import Recipe

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "choosing": "choose_recipe",
        "load": "dump_recipe load_recipe",
        "plan": "RunPlan plan_run",
        "schema": "Recipe",
    },
)

__all__ = ["Recipe", "RunPlan", "choose_recipe", "dump_recipe", "load_recipe", "plan_run"]
