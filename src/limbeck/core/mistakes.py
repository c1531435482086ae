"""Validation errors in one line: the place, what is wrong, what was given."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from limbeck.errors import join_mistakes

_BRANCHES = ("str", "int", "ShapeSpec", "TaskSpec", "SourceSpec")
"""Names of types that pydantic adds to the place of a value of a union, such as `student.shape.ShapeSpec.layers`."""

_WANTED = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "finite": "a finite number",
    "literal": "{expected}",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "a number below {lt}",
    "less_than_equal": "{le} or less",
}
"""The values to give in place of a refused one, by the type of pydantic's error without its ending (`_ENDING`).

Bounds in braces are those that pydantic reports with the error.
"""
_ENDING = re.compile("_(type|parsing|error|number|from_float|parsing_size)$")
"""The ending of a type of pydantic's errors: `_parsing` of `int_parsing`, `_error` of `literal_error`."""

_LONGEST_VALUE = 80
"""Most characters of foreign text in a message."""


def explain(error: ValidationError) -> str:
    """Turn a validation error into one line; see `mistakes_of`."""
    return join_mistakes(mistakes_of(error))


def mistakes_of(error: ValidationError) -> list[str]:
    """Return the mistakes of a validation error, a line each, with its place.

    For a value of a union, pydantic reports one failure for each type of the union. Only one of them is shown: the
    author meant the type whose failure lies deepest in the value. Of equally deep failures, one that says more than
    "wrong type" is chosen.
    """
    # The failures of one value of a union form a group, by the place of the value. Any other failure is a group of its
    # own, by its number among all.
    groups: dict[Any, list[Any]] = {}
    for number, failure in enumerate(error.errors()):
        place_of_union = _place_of_union(failure["loc"])
        if place_of_union is None:
            groups[number] = [failure]
        else:
            groups.setdefault(place_of_union, []).append(failure)

    lines: list[str] = []
    for failures in groups.values():
        line = _explain_item(max(failures, key=_rank))
        # A suggestion at the end has its question mark.
        if not line.endswith("?"):
            line += "."
        lines.append(line)
    return lines


def wanted_of(item: Any) -> str:
    """Return the values to give in place of one that pydantic refused for its type or its bounds.

    Args:
        item: One of a `ValidationError`'s `errors()`.

    Returns:
        Such as `a number` or `1 or less`; empty for errors of other types.
    """
    # What pydantic reports with the error, such as a bound, as text.
    bounds: dict[str, Any] = {}
    for key, value in item.get("ctx", {}).items():
        if isinstance(value, int):
            bounds[key] = f"{value:,}"
        elif isinstance(value, float):
            bounds[key] = f"{value:,g}"
        else:
            bounds[key] = value
    error_type = _ENDING.sub("", item["type"])
    return _WANTED.get(error_type, "").format_map(bounds)


def show_value(value: Any) -> str:
    """Return a value as a recipe has it, for a message."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text[:_LONGEST_VALUE]


def _rank(item: Any) -> tuple[int, bool]:
    """Return the rank of a failure: its depth in the value, then whether it is more than a wrong type."""
    is_wrong_type = item["type"].endswith("_type")
    return len(_written_place(item["loc"])), not is_wrong_type


def _explain_item(item: Any) -> str:
    """Write one of a `ValidationError`'s `errors()` as a line: `loss.weight is -1; give 0 or more`."""
    # A mistake without a place is one of the recipe as a whole.
    place = ".".join(map(str, _written_place(item["loc"]))) or "recipe"
    if item["type"] == "missing":
        return f"{place}: is missing"

    wanted = wanted_of(item)
    if wanted:
        value = item["input"]
        line = f"{place} is {show_value(value)}; give {wanted}"
        # A single value in the place of a list is shown as a list: `give a list: [bert]`.
        wants_list = item["type"] in ("list_type", "tuple_type")
        if wants_list and isinstance(value, str | int | float):
            line += f": [{str(value)[:_LONGEST_VALUE]}]"
        return line

    message = item["msg"].removeprefix("Value error, ").rstrip(".")
    if item["type"] == "value_error":
        return f"{place}: {message}"
    return f"{place}: {message} (got {str(item.get('input'))[:_LONGEST_VALUE]!r})"


def _is_type_name(part: Any) -> bool:
    """Whether a part of a place is the name of a type, which pydantic adds, and not a key that the user wrote."""
    return part in _BRANCHES or "[" in str(part)


def _written_place(parts: Sequence[Any]) -> list[Any]:
    """Return a place without the names of types."""
    return [part for part in parts if not _is_type_name(part)]


def _place_of_union(parts: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the place of the value of a union that a failure is about; None where there is no union."""
    for index, part in enumerate(parts):
        if _is_type_name(part):
            return tuple(parts[:index])
    return None
