"""Candidates of a mapping search: the recipe that is searched for, with another layer mapping in it."""

from __future__ import annotations

from limbeck.errors import LimbeckError, RecipeError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search.mapping_space import NONE, MappingSpace, MappingTuple
from limbeck.search.proxy_request import check_text_only

OPTION = "mapping"


def methods_with_mapping() -> list[str]:
    """Return the methods that take a layer mapping."""
    return [name for name, method in METHODS.items() if OPTION in method.options.model_fields]


def mapped_stages(recipe: Recipe) -> list[int]:
    """Return the stages whose method takes a layer mapping, counted from 0."""
    known = methods_with_mapping()
    return [index for index, stage in enumerate(recipe.stages) if stage.method["name"] in known]


def with_mapping(recipe: Recipe, mapping: MappingTuple) -> Recipe:
    """Return a recipe whose stages learn by a mapping, wherever they take one; nothing else is changed."""
    return load_recipe(recipe, [f"stages.{index}.method.{OPTION}={list(mapping)}" for index in mapped_stages(recipe)])


def plan_candidate(recipe: Recipe, mapping: MappingTuple) -> RunPlan:
    """Plan the run of a mapping.

    Raises:
        RecipeError: if the recipe cannot be trained by it.
    """
    try:
        return plan_run(with_mapping(recipe, mapping))
    except LimbeckError as problem:
        raise RecipeError(f"The search may try mapping {list(mapping)}, which this recipe cannot: {problem}") from None


def check_searchable(plan: RunPlan, space: MappingSpace) -> None:
    """Refuse a recipe whose layer mapping cannot be searched, before any text is read.

    Args:
        plan: Of the recipe.
        space: The mappings to search.

    Raises:
        RecipeError: for a recipe without stages, one that learns from labelled rows, one whose methods take no layer
            mapping, one that cannot be trained by the sparsest mapping, or a space of one mapping.
    """
    check_text_only(plan)
    if not mapped_stages(plan.recipe):
        used = " and ".join(dict.fromkeys(f"'{stage.method['name']}'" for stage in plan.recipe.stages))
        raise RecipeError(f"{used} takes no layer mapping; methods that do are {', '.join(methods_with_mapping())}.")
    if space.size == 1:
        only = space.decode(next(iter(space)))
        raise RecipeError(f"{list(only)} is the only layer mapping there is, so there is nothing to search.")
    lowest = min(space.choices[-1].values())
    plan_candidate(plan.recipe, (NONE,) * (space.student - 1) + (lowest,))
