"""Recipes: the schema, loading with overrides, and the checks across fields."""

from limbeck.recipe.choosing import choose_recipe
from limbeck.recipe.load import dump_recipe, load_recipe
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe

__all__ = ["Recipe", "RunPlan", "choose_recipe", "dump_recipe", "load_recipe", "plan_run"]
