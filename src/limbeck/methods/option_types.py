"""Types of options that methods share, each with an error that says what may be written."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

MAPPING_FORMS = (
    "a strategy by name (single, last, uniform, uniform_consecutive, uniform_last, contribution), a teacher layer for "
    "each student layer such as [0, 0, 5, 10] where 0 is none, or student layer to teacher layers such as {3: 5, 4: "
    "[9, 10]}"
)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_mapping(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(map(_whole, value))):
        return value
    if isinstance(value, dict) and all(map(_whole, value)):
        targets = [target if isinstance(target, list) else [target] for target in value.values()]
        if all(_whole(layer) for target in targets for layer in target):
            return value
    raise ValueError(f"{str(value)[:80]!r} is no layer mapping; give {MAPPING_FORMS}")


def _check_layer(value: Any) -> Any:
    if _whole(value) or value in ("last", "auto"):
        return value
    raise ValueError(
        f"{str(value)[:80]!r} is no layer; give a number (1 is the first block, -1 the last), 'last' or 'auto'"
    )


def _check_count(value: Any) -> Any:
    if (_whole(value) and value >= 1) or value == "auto":
        return value
    raise ValueError(f"{str(value)[:80]!r} is no number of heads; give a whole number, 1 or more, or 'auto'")


MappingChoice: TypeAlias = Annotated[str | list[int] | dict[int, int | list[int]], BeforeValidator(_check_mapping)]
LayerChoice: TypeAlias = Annotated[int | Literal["last", "auto"], BeforeValidator(_check_layer)]
HeadCount: TypeAlias = Annotated[int | Literal["auto"], BeforeValidator(_check_count)]
