"""Strict models: the base of all parts of a recipe, which refuses unknown keys and is described by its docstrings."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from limbeck.errors import suggestion


class Strict(BaseModel):
    """The base of all parts of a recipe: frozen, and an unknown key is refused with the nearest one.

    The docstring below a field is its description.
    """

    # Built when first used: most commands need a few of the many there are.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys that belong to another part, with their whole paths."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the fields."""
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            if name in fields and text:
                fields[name]["description"] = text
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        problems = dict(_wrong_keys(cls, data)) if isinstance(data, dict) else {}
        if not problems:
            return validate(data)
        found = [_line_error((), message, data) for message in problems.values()]
        try:
            validate({key: value for key, value in data.items() if key not in problems})
        except ValidationError as error:
            # Of the part as a whole it says only what follows from the wrong keys.
            below = (item for item in error.errors() if item["loc"] and item["type"] != "missing")
            found += [
                _line_error(item["loc"], item["msg"], item["input"], item["type"], item.get("ctx")) for item in below
            ]
        raise ValidationError.from_exception_data(cls.__name__, found)


@cache
def descriptions(cls: type[BaseModel]) -> dict[str, str]:
    """Return the description of each field: its own, or else the docstring below it.

    Pydantic would read the docstrings of all classes as these are made, a tenth of the time of a refused command.
    """
    below: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        below |= _docstrings(base.__module__).get(base.__name__, {}) if issubclass(base, Strict) else {}
    return {name: field.description or below.get(name, "") for name, field in cls.model_fields.items()}


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Read the docstrings below the fields of each class of a module; none where its source is not there."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    found: dict[str, dict[str, str]] = {}
    for part in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for field, text in pairwise(part.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                    found.setdefault(part.name, {})[name] = inspect.cleandoc(docstring)
    return found


def _wrong_keys(cls: type[BaseModel], data: dict[Any, Any]) -> Iterator[tuple[Any, str]]:
    """Say of each key that is unknown, or has a value that stands for another, what would be right."""
    missing = _missing(cls, data)
    for key in data:
        if key not in cls.model_fields:
            other = getattr(cls, "elsewhere", {}).get(key)
            near = f" Did you mean '{other}'?" if other else suggestion(str(key), cls.model_fields)
            yield key, f"unknown key '{str(key)[:200]}'.{near}{missing}"
            missing = ""
        # Pydantic takes true for 1, and YAML takes yes and on for true.
        elif isinstance(data[key], bool) and not _takes_truth(cls.model_fields[key].annotation):
            choices = _choices(cls.model_fields[key].annotation)
            yield key, f"{key} is {str(data[key]).lower()}, which has no meaning here: give {choices}"


def _line_error(
    place: tuple[int | str, ...],
    message: str,
    value: Any,
    kind: str = "value_error",
    context: Mapping[str, Any] | None = None,
) -> InitErrorDetails:
    error = PydanticCustomError(kind, "{message}", {**(context or {}), "message": message})
    return InitErrorDetails(type=error, loc=place, input=value)


def _takes_truth(kind: Any) -> bool:
    """Whether a type has truth values among its own."""
    return kind in (bool, Any) or any(map(_takes_truth, get_args(kind)))


def _missing(cls: type[BaseModel], data: dict[Any, Any]) -> str:
    """Name the keys that have to be given and are not."""
    names = [name for name, field in cls.model_fields.items() if field.is_required() and name not in data]
    return f" {' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing." if names else ""


def _choices(kind: Any) -> str:
    """Say which values a type of named ones has, its only ones."""
    parts = (kind,) if get_origin(kind) is Literal else get_args(kind) or (kind,)
    kinds = [part for part in parts if part is not NoneType]
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return f"a mapping such as {{{next(iter(kinds[0].model_fields))}: …}}"
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        *others, last = map(str, get_args(kinds[0]))
        return f"{', '.join(others)} or {last}" if others else last
    return "a value"
