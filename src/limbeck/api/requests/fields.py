"""Fields of a request: each declares an option of a call once, for the command line, for Python and for their helps.

A request is a class with a field for each option, decorated with `request`; see `limbeck.api.requests` for an example.
`limbeck.cli.command` makes a command of such a class, and `limbeck.api.calls` checks the arguments of a Python function
by it.
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
"""Returns the completions of a value that the user has begun to type, for the shell."""

# Titles of panels, the boxes that group options in the help of a command. Several commands have these panels.
DISTILLED = "What is distilled"
TRAINING = "Training"
MEASURING = "Measuring"
RESULT = "Result and messages"
REQUIRED: Any = PydanticUndefined
"""Default of an option that must be given."""

_KEY = "option"
"""Key under which a field of pydantic keeps its `Option`, in `json_schema_extra`."""
_CONFIG = ConfigDict(arbitrary_types_allowed=True, defer_build=True)


@dataclass(frozen=True)
class Option:
    """An option of a call.

    Attributes:
        description: Its line in the command's help.
        default: Its value where it is left out; `REQUIRED` where it must be given.
        python: Its description for Python, where that takes other values; empty where `description` holds for both.
        least: The smallest allowed number.
        most: The largest allowed number.
        cls: Its type on the command line; None where the type of the field holds there too.
        is_argument: Whether the command takes it by its position, without a flag.
        flag: The flag of the command, such as `--set`; empty where it is the field's name with hyphens.
        metavar: The word that stands for the value in the help.
        panel: The title of its panel in the help; None for the first panel.
        complete: Completes its value in a shell.
        reads: Turns what the user gave, such as text with commas, into the value of the field. It is called with the
            name of the option for messages (`--layers`) and what was given.
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
    """Return a field of a request, which the command takes as a flag.

    Args:
        description: Its line in the command's help.
        default: Its value where it is left out; it must be given by default.
        **more: Other attributes of `Option`: `python` describes the values that Python takes where they are others,
            `cls` is the type on the command line where it is another than the field's.
    """
    declared = Option(description, default, **more)
    return Field(
        default=default,
        description=description,
        ge=declared.least,
        le=declared.most,
        json_schema_extra={_KEY: typing.cast(Any, declared)},
    )


def argument(description: str, *, default: Any = REQUIRED, **more: Any) -> Any:
    """Return a field of a request, which the command takes by its position.

    Args:
        description: Its line in the command's help.
        default: Its value where it is left out; it must be given by default.
        **more: Other attributes of `Option`, such as `python` and `cls`; see `option`.
    """
    return option(description, default=default, is_argument=True, **more)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(option, argument))
def request(cls: type[T]) -> type[T]:
    """Turn a class with a field for each option into a frozen pydantic dataclass, which checks types and bounds."""
    decorate: Any = pydantic.dataclasses.dataclass(frozen=True, config=_CONFIG)
    checked: type[T] = decorate(cls)
    return checked


def options_of(cls: Any) -> dict[str, Option]:
    """Return the options of a request by their names."""
    return {name: _option_of(field) for name, field in _fields(cls).items()}


def type_of(cls: Any, name: str) -> Any:
    """Return the type of an option on the command line: `int` for `int | None`, since nobody can type None."""
    declared = options_of(cls)[name]
    return declared.cls or _without_none(_fields(cls)[name].annotation)


def python_fields(cls: Any) -> Iterable[dataclasses.Field[Any]]:
    """Return the fields in the order of Python's signature: positional parameters first, then keyword-only ones."""
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
    """Return T for a type `T | None`; any other type as it is."""
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation
