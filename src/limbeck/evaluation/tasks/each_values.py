"""Keys of a task's description that stand for several splits: `test.{language}` is written out for each language.

A *choice* is one value for each name that is fixed, such as `{"language": "de"}`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_CHARACTERS = 5_000_000
"""Of a description once it is written out; a few lines could stand for more splits than memory holds."""


def write_out_each(description: Any) -> Any:
    """Write a description out for all values that its key `each` gives to names in braces.

    Args:
        description: Plain values, as YAML gives them. What has no usable `each` is returned as it is: the schema then
            refuses what is wrong with it.

    Raises:
        ValueError: if the result would be too large.
    """
    if not isinstance(description, dict):
        return description
    values_of_name = description.get("each")
    if not isinstance(values_of_name, dict):
        return description
    if not all(isinstance(values, list) for values in values_of_name.values()):
        return description

    combinations = math.prod(map(len, values_of_name.values()))
    if len(repr(description)) * combinations > _MOST_CHARACTERS:
        raise ValueError("'each' makes too many splits of this description: list fewer values under 'each'")

    written = {}
    for key, value in description.items():
        if key == "each":
            written[key] = value
        else:
            written[key] = _write_out(value, values_of_name, choice={})
    return written


def _write_out(value: Any, values_of_name: Mapping[str, Sequence[Any]], choice: Mapping[str, str]) -> Any:
    """Write a value out: each key and each text in a list comes once for every choice of the names in its braces.

    Args:
        value: Plain values.
        values_of_name: The values of every name.
        choice: The names whose value a key above has fixed.
    """
    if isinstance(value, dict):
        # The key `test.{language}` becomes `test.de`, and below that key every `{language}` is `de`.
        written = {}
        for key, item in value.items():
            for choice_of_key in _choices(key, values_of_name, choice):
                written[_filled(key, choice_of_key)] = _write_out(item, values_of_name, choice_of_key)
        return written
    if isinstance(value, list):
        items: list[Any] = []
        for item in value:
            choices = _choices(item, values_of_name, choice)
            items += [_write_out(item, values_of_name, choice_of_item) for choice_of_item in choices]
        return items
    return _filled(value, choice)


def _choices(
    text: Any, values_of_name: Mapping[str, Sequence[Any]], choice: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yield a choice for each combination of values of the free names in a text; what is no text has no names."""
    # Without free names there is one combination, which is empty: the choice stays as it is.
    free_names = []
    if isinstance(text, str):
        free_names = [name for name in values_of_name if name not in choice and f"{{{name}}}" in text]
    values_of_free_names = [map(str, values_of_name[name]) for name in free_names]
    for values in itertools.product(*values_of_free_names):
        yield {**choice, **dict(zip(free_names, values, strict=True))}


def _filled(text: Any, choice: Mapping[str, str]) -> Any:
    """Replace names in braces by their values; what is no text stays as it is."""
    if not isinstance(text, str):
        return text
    for name, value in choice.items():
        text = text.replace(f"{{{name}}}", value)
    return text
