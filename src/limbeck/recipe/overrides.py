"""Overrides of a document by dotted paths, as `--set` takes them."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.core.assignments import parse_assignment
from limbeck.core.yaml import DEEPEST
from limbeck.errors import RecipeError


def apply_overrides(data: Mapping[str, Any], overrides: str | Sequence[str]) -> dict[str, Any]:
    """Set values by dotted path: `stages.0.training.learning_rate=1e-4`; values are YAML.

    Args:
        data: The recipe; left as it is.
        overrides: `path=value` each, or one alone; a number in a path is an index into a list.

    Returns:
        A changed copy. Whether the keys exist is decided when the recipe is checked.

    Raises:
        RecipeError: for an override without `=`, or a path that leads nowhere.
    """
    document: dict[str, Any] = copy.deepcopy(dict(data))
    paths = []
    for override in [overrides] if isinstance(overrides, str) else overrides:
        path, value = parse_assignment(override, f"Override '{override}'", "it as path.to.key=value")
        keys = path.split(".")
        if not all(keys):
            raise RecipeError(f"Override '{override}' names no key; write it as path.to.key=value.")
        if len(keys) > DEEPEST:
            raise RecipeError(f"Override '{override[:80]}' has {len(keys)} levels, but no key is that deep.")
        set_value(document, keys, value, override)
        paths.append(path)
    return without_reasons(document, paths)


def without_reasons(data: dict[str, Any], changed: Sequence[str]) -> dict[str, Any]:
    """Return a recipe without the reasons for values that were changed, or hold or lie in such.

    Args:
        data: The recipe.
        changed: Paths of the values.
    """
    reasons = data.get("reasons")
    if not isinstance(reasons, dict):
        return data
    remaining = {key: reason for key, reason in reasons.items() if not _is_changed(key, changed)}
    return data | {"reasons": remaining}


def _is_changed(key: str, changed: Sequence[str]) -> bool:
    """Whether a value was changed, or one that holds it or lies in it."""
    return any(f"{key}.".startswith(f"{path}.") or f"{path}.".startswith(f"{key}.") for path in changed)


_ALONE = {"method": "name", "task": "name", "student": "shape"}
"""Parts of a recipe for which one of their keys may stand."""


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
        place = keys[:position]
        slot: str | int = key
        if isinstance(node, list):
            slot = _index_of(key, node, place, override)
        elif not isinstance(node, dict):
            raise RecipeError(f"Override '{override}': there is nothing below '{'.'.join(place)}'.")
        if position == len(keys) - 1:
            node[slot] = value
            return
        if isinstance(node, dict) and not isinstance(node.get(slot), dict | list):
            node[slot] = _spell_out(key, node.get(slot))
        node = node[slot]


def _spell_out(key: str, value: Any) -> dict[str, Any]:
    """The mapping that a bare value stands for, such as {name: minilmv2}, so that other keys can be set beside it."""
    if key in _ALONE and isinstance(value, str | int):
        return {_ALONE[key]: value}
    return {}


def _index_of(key: str, items: list[Any], place: Sequence[str], override: str) -> int:
    """The index into a list that a key of an override names."""
    is_number = key.isascii() and key.isdigit() and len(key) < 10
    if is_number and int(key) < len(items):
        return int(key)
    name = f"stage {key}" if place[-1:] == ["stages"] else ".".join((*place, key))
    if not items:
        indices = "the list is empty"
    elif len(items) == 1:
        indices = "the only index is 0"
    else:
        indices = f"indices are 0 to {len(items) - 1}"
    raise RecipeError(f"Override '{override}': There is no {name}; {indices}.")
