"""Candidates of a search of teacher layers: the recipe that is searched for, reading another layer of its teacher."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.errors import RecipeError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.schema import Recipe

OPTION = "teacher_layer"


def methods_with_teacher_layer() -> list[str]:
    """Return the methods that read one layer of the teacher, by number."""
    return [name for name, method in METHODS.items() if OPTION in method.options.model_fields]


def layer_stage(recipe: Recipe) -> int:
    """Return the stage whose teacher layer is searched, counted from 0.

    Raises:
        RecipeError: for a recipe with no such stage, or with several.
    """
    if not recipe.stages:
        raise RecipeError("The recipe has no stages, so no teacher layer is read; give it one.")
    known = methods_with_teacher_layer()
    found = [index for index, stage in enumerate(recipe.stages) if stage.method["name"] in known]
    if not found:
        used = " and ".join(dict.fromkeys(f"'{stage.method['name']}'" for stage in recipe.stages))
        raise RecipeError(f"{used} reads no teacher layer by number; methods that do are {', '.join(known)}.")
    if len(found) > 1:
        titles = ", ".join(recipe.stages[index].title for index in found)
        raise RecipeError(f"The stages {titles} each read a teacher layer; search one at a time, in its own recipe.")
    return found[0]


def with_teacher_layer(recipe: Recipe, layer: int) -> Recipe:
    """Return a recipe that reads another teacher layer; nothing else is changed."""
    return load_recipe(recipe, [f"stages.{layer_stage(recipe)}.method.{OPTION}={layer}"])


def choose_layers(layers: Sequence[int] | None, plan: RunPlan) -> tuple[int, ...]:
    """Return the candidates in order.

    Args:
        layers: What was asked for; None for all.
        plan: Of the recipe.

    Raises:
        RecipeError: for a layer that the teacher does not have, or fewer than two.
    """
    depth = plan.teacher.layers
    found = tuple(sorted(set(range(1, depth + 1) if layers is None else layers)))
    for layer in found:
        if not 1 <= layer <= depth:
            raise RecipeError(f"--layers names layer {layer}, but this teacher has layers 1 to {depth}; change it.")
    if len(found) < 2:
        raise RecipeError(
            f"{len(found)} candidate leaves nothing to choose; give --layers two or more of 1 to {depth}."
        )
    return found
