"""Overrides of a document by dotted paths, as `--set` takes them: `stages.0.training.learning_rate=1e-4`."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from limbeck.core.assignments import parse_assignment
from limbeck.core.yaml import DEEPEST
from limbeck.errors import RecipeError

_KEY_OF_BARE_VALUE = {"method": "name", "task": "name", "student": "shape"}
"""Parts of a recipe that may be a bare value in place of a mapping, and the key that the value stands for."""
_MOST_DIGITS = 9
"""Digits of an index into a list; no list is longer."""
_SHOWN_CHARACTERS = 80
"""Most characters of foreign text in a message."""


@dataclass(frozen=True)
class _Override:
    """One value to be set.

    Args:
        text: As the user wrote it, for messages.
        keys: The path to the value.
        value: The value.
    """

    text: str
    keys: tuple[str, ...]
    value: Any

    @property
    def path(self) -> str:
        """The path with dots between its keys."""
        return ".".join(self.keys)


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
    texts = [overrides] if isinstance(overrides, str) else overrides
    changed_paths = []
    for text in texts:
        override = _read_override(text)
        _set_in_place(document, override)
        changed_paths.append(override.path)
    return without_reasons(document, changed_paths)


def without_reasons(data: dict[str, Any], changed_paths: Sequence[str]) -> dict[str, Any]:
    """Return a recipe without the reasons for values that were changed, since they explain limbeck's own choices.

    A reason is also removed where a part that holds its value was changed, or a value within it.

    Args:
        data: The recipe; `reasons` of a chosen recipe has a sentence for each path.
        changed_paths: Dotted paths of the values that were changed.
    """
    reasons = data.get("reasons")
    if not isinstance(reasons, dict):
        return data
    remaining = {}
    for path, reason in reasons.items():
        is_changed = any(_overlap(path, changed_path) for changed_path in changed_paths)
        if not is_changed:
            remaining[path] = reason
    return data | {"reasons": remaining}


def _overlap(path: str, other_path: str) -> bool:
    """Whether two paths lead to the same value, or one of them to a part that holds the other's value."""
    # The dot behind each path keeps `stages.1` from being taken for a part of `stages.10`.
    return f"{path}.".startswith(f"{other_path}.") or f"{other_path}.".startswith(f"{path}.")


def _read_override(text: str) -> _Override:
    """Read `path.to.key=value`, and refuse a path that no recipe has.

    Raises:
        RecipeError: naming the override.
    """
    path, value = parse_assignment(text, where=f"Override '{text}'", form="it as path.to.key=value")
    keys = tuple(path.split("."))
    if not all(keys):
        raise RecipeError(f"Override '{text}' names no key; write it as path.to.key=value.")
    if len(keys) > DEEPEST:
        raise RecipeError(
            f"Override '{text[:_SHOWN_CHARACTERS]}' has {len(keys)} levels (parts between dots), but no key of a "
            "recipe is that deep."
        )
    return _Override(text, keys, value)


def _set_in_place(document: dict[str, Any], override: _Override) -> None:
    """Set a value in a document, in place; mappings that are missing on the way to the value are made.

    Raises:
        RecipeError: for a path that leads nowhere.
    """
    # The part of the document that the keys so far lead to.
    part: Any = document
    last_position = len(override.keys) - 1
    for position in range(last_position):
        key = override.keys[position]
        # A missing part, or a bare value, becomes a mapping. A list stays: a path leads to its items, but adds none.
        if isinstance(part, dict) and not isinstance(part.get(key), dict | list):
            part[key] = _as_mapping(key, part.get(key))
        part = part[_key_or_index(part, position, override)]
    part[_key_or_index(part, last_position, override)] = override.value


def _key_or_index(part: Any, position: int, override: _Override) -> str | int:
    """Return what a key of an override means in a part of the document: a key of a mapping, or an index into a list.

    Args:
        part: The mapping or the list.
        position: The position of the key in the override's path, from 0.
        override: The override.

    Raises:
        RecipeError: for a list without such an item, and a part that is neither.
    """
    key = override.keys[position]
    keys_above = override.keys[:position]
    if isinstance(part, dict):
        return key
    if not isinstance(part, list):
        raise RecipeError(f"Override '{override.text}': there is nothing below '{'.'.join(keys_above)}'.")

    is_number = key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS
    if is_number and int(key) < len(part):
        return int(key)
    item = ".".join((*keys_above, key))
    # The document itself is a mapping, so that a list has a key above it.
    if keys_above[-1] == "stages":
        item = f"stage {key}"
    if not part:
        indices = "the list is empty"
    elif len(part) == 1:
        indices = "the only index is 0"
    else:
        indices = f"indices are 0 to {len(part) - 1}"
    raise RecipeError(f"Override '{override.text}': There is no {item}; {indices}.")


def _as_mapping(key: str, value: Any) -> dict[str, Any]:
    """Return the mapping that a bare value stands for, such as {name: minilmv2}, so that keys can be set beside it."""
    if key in _KEY_OF_BARE_VALUE and isinstance(value, str | int):
        return {_KEY_OF_BARE_VALUE[key]: value}
    return {}
