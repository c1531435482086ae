"""Validation errors in one line: the place, what is wrong, what was given."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import (
    ValidationError,
)

from limbeck.errors import join_mistakes

_BRANCHES = ("str", "int", "ShapeSpec", "TaskSpec", "SourceSpec")
"""Names of types that pydantic puts into the place of a value that may have one of several."""


def explain(error: ValidationError) -> str:
    """Turn a validation error into one line; see `mistakes_of`."""
    return join_mistakes(mistakes_of(error))


def mistakes_of(error: ValidationError) -> list[str]:
    """Return of each mistake the place, and what is wrong, in one line.

    Of a value that may have one of several types pydantic reports a failure for each; the author meant the
    type whose failure lies deepest in the value, and is not that the value is of another type.
    """
    groups: dict[Any, list[Any]] = {}
    for number, item in enumerate(error.errors()):
        choice = _choice(item["loc"])
        groups.setdefault(number if choice is None else choice, []).append(item)
    errors = [
        max(group, key=lambda item: (len(_place(item["loc"])), not item["type"].endswith("_type")))
        for group in groups.values()
    ]
    said = (_explain_one(item) for item in errors)
    return [line if line.endswith("?") else f"{line}." for line in said]


def _explain_one(item: Any) -> str:
    place = ".".join(map(str, _place(item["loc"]))) or "recipe"
    message = item["msg"].removeprefix("Value error, ").rstrip(".")
    if item["type"] == "missing":
        message = "is missing"
    if wanted := wanted_of(item):
        given = item["input"]
        alone = item["type"] in ("list_type", "tuple_type") and isinstance(given, str | int | float)
        return f"{place} is {show_value(given)}; give {wanted}{f': [{str(given)[:80]}]' if alone else ''}"
    shown = "" if item["type"] in ("missing", "value_error") else f" (got {str(item.get('input'))[:80]!r})"
    return f"{place}: {message}{shown}"


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
"""What to give in place of a value, by the kind of pydantic's error."""


def wanted_of(item: Any) -> str:
    """Say what to give in place of a value that pydantic refused for its type or its bounds.

    Args:
        item: One of a `ValidationError`'s `errors()`.

    Returns:
        Such as `a number` or `1 or less`; empty for errors of other kinds.
    """
    bounds = {key: f"{value:,}" if isinstance(value, int) else value for key, value in item.get("ctx", {}).items()}
    bounds = {key: f"{value:,g}" if isinstance(value, float) else value for key, value in bounds.items()}
    kind = re.sub("_(type|parsing|error|number|from_float|parsing_size)$", "", item["type"])
    return _WANTED.get(kind, "").format_map(bounds)


def show_value(value: Any) -> str:
    """Return a value as a recipe has it, for a message."""
    if value is None or isinstance(value, bool):
        return "empty" if value is None else str(value).lower()
    return (repr(value) if isinstance(value, str) else str(value))[:80]


def _is_branch(part: Any) -> bool:
    """Whether a part of a place is the name of a type that pydantic adds: nothing that the user wrote."""
    return part in _BRANCHES or "[" in str(part)


def _place(parts: Sequence[Any]) -> list[Any]:
    return [part for part in parts if not _is_branch(part)]


def _choice(parts: Sequence[Any]) -> tuple[Any, ...] | None:
    """Where the value is whose type is a choice; None where there is no choice."""
    return next((tuple(parts[:index]) for index, part in enumerate(parts) if _is_branch(part)), None)
