"""The value of one training argument, converted to the type that `TrainingArguments` declares, within its range."""

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from transformers import TrainingArguments

from limbeck.core.mistakes import show_value, wanted_of
from limbeck.errors import RecipeError
from limbeck.recipe.training_fields import OWN_TYPES, RANGES, Range

_ANY_NUMBER = Range(-1e15, 1e15)
"""The range of arguments that have none of their own: it refuses NaN, infinity and numbers that are typing mistakes."""
_SHOWN_CHARACTERS = 80
"""Most characters of foreign text in a message."""


@cache
def argument_types() -> dict[str, Any]:
    """Return the types of the arguments that a stage takes, by their names."""
    hints = get_type_hints(TrainingArguments)
    types = {field.name: hints[field.name] for field in fields(TrainingArguments) if field.init}
    types["fsdp"] = bool | str | None  # `transformers` takes true and false, though its annotation is still text.
    return types | OWN_TYPES


@cache
def argument_defaults() -> dict[str, Any]:
    """Return the defaults of `TrainingArguments`, by their names."""
    defaults = {}
    for field in fields(TrainingArguments):
        defaults[field.name] = field.default if field.default_factory is MISSING else field.default_factory()
    return defaults


def convert_argument(name: str, value: Any, place: str) -> Any:
    """Convert the value of an argument to its type, as pydantic does: "5" is a number where one is wanted.

    Args:
        name: The name of the argument.
        value: The value in the recipe.
        place: Where it stands in the recipe, for messages.

    Raises:
        RecipeError: for a value of another type, and a number that no run can use.
    """
    if value is False and name.endswith("_strategy"):
        value = "no"  # YAML reads a bare `no` as false.
    converted = _convert(argument_types()[name], value, place)
    _check_range(name, converted, place)
    return converted


def _convert(annotation: Any, value: Any, place: str) -> Any:
    """Return a value as the type of its argument, such as 5e-5 for the text `5e-5`.

    Args:
        annotation: The type.
        value: The value as the recipe has it.
        place: The place of the argument in the recipe, for messages.

    Raises:
        RecipeError: for a value of another type.
    """
    # Pydantic would take true and false for the numbers 1 and 0.
    takes_bool = annotation is bool or bool in get_args(annotation)
    if isinstance(value, bool) and not takes_bool:
        raise RecipeError(f"{place} is {str(value).lower()}, but this argument needs a value: give one.")
    adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        # A union has an error for each of its types; the first says enough.
        first_error = error.errors()[0]
        wanted = wanted_of(first_error)
        if wanted:
            raise RecipeError(f"{place} is {show_value(value)}; give {wanted}, or leave it out.") from None
        shown = str(value)[:_SHOWN_CHARACTERS]
        raise RecipeError(f"{place}: {first_error['msg']} (got {shown!r}).") from None


def _check_range(name: str, value: Any, place: str) -> None:
    """Refuse numbers that no run can use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name == "max_steps" and value == -1:
        return  # Epochs are counted in its place.
    allowed = RANGES.get(name, _ANY_NUMBER)
    # No comparison holds for NaN, which is therefore not inside.
    is_inside = allowed.least <= value <= allowed.most
    is_refused_bound = value == allowed.least and not allowed.least_allowed
    if is_inside and not is_refused_bound:
        return
    if name == "max_steps":
        raise RecipeError(f"{place} is {value}; give 1 or more, up to {allowed.most:,.0f}, or -1 to count in epochs.")
    bound = "at least" if allowed.least_allowed else "more than"
    raise RecipeError(f"{place} is {value}; give {bound} {allowed.least:g}, up to {allowed.most:g}.")
