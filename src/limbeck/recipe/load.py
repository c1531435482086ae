"""Loading recipes: YAML, overrides, and errors in one line."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.core.yaml import DEEPEST, dump_yaml, parse_yaml, read_document
from limbeck.errors import RecipeError
from limbeck.recipe.explaining import explain
from limbeck.recipe.plain_data import check_plain
from limbeck.recipe.schema import Recipe


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read a recipe file into a dict, unchecked.

    Raises:
        RecipeError: if the file is missing, unreadable or not a mapping.
    """
    origin = f"Recipe '{path}'"
    data = read_document(Path(path), origin, "`limbeck recipe --example` prints one to start from.")
    if not isinstance(data, dict):
        raise RecipeError(f"{origin} must be a mapping with teacher, student, corpus and stages.")
    return data


def apply_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Set values by dotted path: `stages.0.training.learning_rate=1e-4`; values are YAML.

    Args:
        data: The recipe; left as it is.
        overrides: `path=value` each; a number in a path is an index into a list.

    Returns:
        A changed copy. Whether the keys exist is decided when the recipe is checked.

    Raises:
        RecipeError: for an override without `=`, or a path that leads nowhere.
    """
    result: dict[str, Any] = copy.deepcopy(dict(data))
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals:
            raise RecipeError(f"Override '{override}' has no value; write it as path.to.key=value.")
        keys = path.split(".")
        if not all(keys):
            raise RecipeError(f"Override '{override}' names no key; write it as path.to.key=value.")
        if len(keys) > DEEPEST:
            raise RecipeError(f"Override '{override[:80]}' has {len(keys)} levels, and nothing is that deep.")
        _set(result, keys, parse_yaml(value, f"Override '{override}'"), override)
    return result


def _set(node: Any, keys: list[str], value: Any, override: str) -> None:
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        slot: Any = key
        if isinstance(node, list):
            if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(node)):
                raise RecipeError(
                    f"Override '{override}': '{key}' must be an index from 0 to {len(node) - 1} at that place."
                )
            slot = int(key)
        elif not isinstance(node, dict):
            raise RecipeError(f"Override '{override}': there is nothing below '{'.'.join(keys[:position])}'.")
        if last:
            node[slot] = value
        else:
            if isinstance(node, dict) and not isinstance(node.get(slot), dict | list):
                # A bare name such as `method: minilmv2` becomes {name: ...}, so that its options can be set.
                node[slot] = {"name": node[slot]} if key == "method" and isinstance(node.get(slot), str) else {}
            node = node[slot]


def load_recipe(recipe: Recipe | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Make a checked `Recipe` of a path, a dict or a `Recipe`, with overrides.

    Args:
        recipe: The recipe.
        overrides: `path=value` each, applied before checking.

    Returns:
        The recipe.

    Raises:
        RecipeError: one line for the first thing that is wrong, with its place in the recipe.
    """
    if isinstance(recipe, str | Path):
        data: Mapping[str, Any] = read_recipe(recipe)
    elif isinstance(recipe, Recipe):
        if not overrides:
            return recipe
        data = recipe.model_dump(exclude_unset=True)
    else:
        data = recipe
    check_plain(data)
    changed = apply_overrides(data, overrides)
    check_plain(changed)
    try:
        return Recipe.model_validate(changed)
    except ValidationError as error:
        raise RecipeError(explain(error)) from None


def dump_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with every default filled in."""
    return dump_yaml(recipe.model_dump(mode="json"))
