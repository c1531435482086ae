"""Loading recipes: YAML, overrides, and errors in one line."""

import copy
import math
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.core.yaml import DEEPEST, MOST_DIGITS, dump_yaml, parse_yaml, read_document
from limbeck.errors import RecipeError
from limbeck.recipe.schema import Recipe, explain

# What holds for every value of a recipe, whichever key it has: bounded, and text without control characters.


LONGEST_TEXT = 4096
"""Characters; no path of a file is longer."""

_NOT_WRITTEN = ("Cc", "Cs", "Zl", "Zp")
# They turn the direction of what follows, so that a name shows as another.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_plain(data: Any, place: str = "", depth: int = 0) -> None:
    """Refuse what no key may hold: text that a terminal or a file name cannot show, and data without end.

    Args:
        data: A recipe, or a part of it.
        place: Where the part is, for the message.
        depth: Levels above it.

    Raises:
        RecipeError: for a control character, a lone surrogate, text longer than a path may be, a number that is not
            finite or longer than any, or too many levels.
    """
    if depth > DEEPEST:
        raise RecipeError(f"{place[:80]}: more than {DEEPEST} levels of lists and mappings; no key is that deep.")
    if isinstance(data, str):
        _check_text(data, place)
    elif isinstance(data, int) and abs(data) >= 10**MOST_DIGITS:
        raise RecipeError(f"{place}: a number of more than {MOST_DIGITS} digits; no key has such a value.")
    elif isinstance(data, float) and not math.isfinite(data):
        raise RecipeError(f"{place} is {data}; give a finite number.")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(key, str):
                _check_text(key, f"a key of {place or 'the recipe'}")
            check_plain(value, f"{place}.{key}" if place else str(key), depth + 1)
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            check_plain(value, f"{place}.{index}", depth + 1)


def _check_text(text: str, place: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise RecipeError(f"{place}: {text[:60]!r}… has {len(text):,} characters; give {LONGEST_TEXT:,} or less.")
    strange = next((c for c in text if unicodedata.category(c) in _NOT_WRITTEN or c in _TURNS), None)
    if strange is not None:
        raise RecipeError(f"{place}: {text[:80]!a} has the character {strange!a}, which no name has; leave it out.")


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
        set_value(result, keys, parse_yaml(value, f"Override '{override}'"), override)
    return result


def set_value(node: Any, keys: Sequence[str], value: Any, override: str) -> None:
    """Set a value of a recipe; mappings that are not there are made on the way to it.

    Args:
        node: The recipe, which is changed.
        keys: The path to the value.
        value: The value.
        override: What sets it, for messages.

    Raises:
        RecipeError: for a path that leads nowhere.
    """
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
    return dump_yaml(recipe.model_dump())


# Recipes that come with the package.


def read_shipped(name: str) -> str:
    """Return the text of a shipped recipe: `example` or `quickstart`."""
    return files("limbeck.recipe").joinpath("shipped_recipes", f"{name}.yaml").read_text(encoding="utf-8")
