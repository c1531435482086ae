"""Fields of a request: each declares an option of a call once, for the command line, for Python and for their helps.

A request is a class with a field for each option, decorated with `request`. `limbeck.cli.command` makes a command of
it, and `limbeck.api.calls` a Python function.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic.dataclasses
from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

T = TypeVar("T")
Complete = Callable[[str], list[str]]
"""Completions of a value that is begun."""

# Panels of a help that several commands have.
DISTILLED = "What is distilled"
TRAINING = "Training"
MEASURING = "Measuring"
RESULT = "Result and messages"
REQUIRED: Any = PydanticUndefined
"""Default of an option that must be given."""

_KEY = "option"
_CONFIG = ConfigDict(arbitrary_types_allowed=True, defer_build=True)


@dataclass(frozen=True)
class Option:
    """An option of a call.

    Attributes:
        description: Its line in the command's help.
        default: Its value where it is left out; `REQUIRED` where it must be given.
        python: Its description for Python, where that takes other values; empty where it is the command's.
        least: The smallest number.
        most: The largest number.
        cls: Its type on the command line; None where it is the field's.
        is_argument: Whether the command takes it by its place.
        flag: The option itself; empty for its name with hyphens.
        metavar: The word for the value in the help.
        panel: Its panel in the help; None for the first.
        complete: Completions of its value in a shell.
        reads: Reads lists written with commas, and other text: a function of the option, as messages write it, and the
            value.
        show_default: Whether the help shows the default.
    """

    description: str
    default: Any = REQUIRED
    python: str = ""
    least: float | None = None
    most: float | None = None
    cls: Any = None
    is_argument: bool = False
    flag: str = ""
    metavar: str | None = None
    panel: str | None = None
    complete: Complete | None = None
    reads: Callable[[str, Any], Any] | None = None
    show_default: bool = True

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED


def option(description: str, *, default: Any = REQUIRED, **more: Any) -> Any:
    """Return a field of a request; further arguments are those of `Option`."""
    declared = Option(description, default, **more)
    return Field(
        default=default,
        description=description,
        ge=declared.least,
        le=declared.most,
        json_schema_extra={_KEY: typing.cast(Any, declared)},
    )


def argument(description: str, *, default: Any = REQUIRED, **more: Any) -> Any:
    """Return a field that the command takes by its place; further arguments are those of `Option`."""
    return option(description, default=default, is_argument=True, **more)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(option, argument))
def request(cls: type[T]) -> type[T]:
    """Make a class whose fields are options a frozen dataclass that checks types and bounds."""
    decorate: Any = pydantic.dataclasses.dataclass(frozen=True, config=_CONFIG)
    checked: type[T] = decorate(cls)
    return checked


def options_of(cls: Any) -> dict[str, Option]:
    """Return the options of a request by their names."""
    return {name: _option_of(field) for name, field in _fields(cls).items()}


def type_of(cls: Any, name: str) -> Any:
    """Return the type of an option on the command line; without None, which only a default can be."""
    declared = options_of(cls)[name]
    return declared.cls or _without_none(_fields(cls)[name].annotation)


def python_fields(cls: Any) -> Iterable[dataclasses.Field[Any]]:
    """Return the fields as Python's signature has them: those by position, then those by name."""
    return sorted(dataclasses.fields(cls), key=lambda field: bool(field.kw_only))


def _fields(cls: Any) -> dict[str, FieldInfo]:
    """Return the fields of a request as pydantic has them, by name."""
    fields: dict[str, FieldInfo] = cls.__pydantic_fields__
    return fields


def _option_of(field: FieldInfo) -> Option:
    """Return the option that a field declares."""
    extra: Any = field.json_schema_extra
    declared: Option = extra[_KEY]
    return declared


def _without_none(annotation: Any) -> Any:
    """Return the other member of a union with None; any other type as it is."""
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation
