"""Validation errors in one line: the place, what is wrong, what was given."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

_BRANCHES = ("str", "int", "ShapeSpec")


def explain(error: ValidationError) -> str:
    """Turn a validation error into one line: the place, what is wrong, and how many more there are.

    Of a value that may have one of several types pydantic reports a failure for each; the one that comes furthest into
    the value is the one that its author meant.
    """
    errors = error.errors()
    first = max(errors, key=lambda item: len(_place(item))) if _is_choice(errors) else errors[0]
    place = ".".join(map(str, _place(first))) or "recipe"
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    if first["type"] == "missing":
        message = "is missing"
    given = first.get("input")
    shown = "" if first["type"] in ("missing", "value_error") else f" (got {str(given)[:80]!r})"
    more = 0 if _is_choice(errors) else len(errors) - 1
    return f"{place}: {message}{shown}." + (f" ({more} more after this one.)" if more else "")


def _place(item: Any) -> list[Any]:
    """Where an error is, without the names of types that pydantic adds: they are nothing the user wrote."""
    return [part for part in item["loc"] if not _is_branch(part)]


def _is_branch(part: Any) -> bool:
    return part in _BRANCHES or "[" in str(part)


def _is_choice(errors: list[Any]) -> bool:
    """Whether all errors are of one value that may have several types."""
    values = {_value_with_branches(item) for item in errors}
    return len(errors) > 1 and len(values) == 1 and None not in values


def _value_with_branches(item: Any) -> tuple[Any, ...] | None:
    """Where the value is whose type is a choice; None where there is no choice."""
    place: tuple[Any, ...] = item["loc"]
    return next((place[:index] for index, part in enumerate(place) if _is_branch(part)), None)
