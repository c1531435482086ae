"""Loading recipes: YAML, overrides, and errors in one line."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from limbeck.errors import RecipeError
from limbeck.recipe.explaining import explain
from limbeck.recipe.schema import Recipe


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads `1e-4` as a number, as YAML 1.2 and everyone who writes rates does."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML without tags or code.

    Args:
        text: The document.
        origin: Where it comes from, for the message.

    Raises:
        RecipeError: if it is not YAML, naming the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise RecipeError(f"{origin} is not valid YAML{where}: {problem}.") from None
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{origin} cannot be read as YAML: {str(error)[:200]}.") from None


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Read a recipe file into a dict, unchecked.

    Raises:
        RecipeError: if the file is missing, unreadable or not a mapping.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(
            f"Recipe '{path}' does not exist; `limbeck recipe --example` prints one to start from."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"Recipe '{path}' cannot be read: {error}.") from None
    data = parse_yaml(text, f"Recipe '{path}'")
    if not isinstance(data, dict):
        raise RecipeError(f"Recipe '{path}' must be a mapping with teacher, student, corpus and stages.")
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
        if not all(path.split(".")):
            raise RecipeError(f"Override '{override}' names no key; write it as path.to.key=value.")
        _set(result, path.split("."), parse_yaml(value, f"Override '{override}'"), override)
    return result


def _set(node: Any, keys: list[str], value: Any, override: str) -> None:
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        slot: Any = key
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
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
    try:
        return Recipe.model_validate(apply_overrides(data, overrides))
    except ValidationError as error:
        raise RecipeError(explain(error)) from None


def dump_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, with every default filled in."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
