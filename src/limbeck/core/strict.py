"""Strict models: the base of all parts of a recipe, which refuses unknown keys and is described by its docstrings.

A part of a recipe is a pydantic model. Its JSON schema, help and messages use the *description* of each field: the
argument of that name, or else the docstring below the field in the source.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from limbeck.core.lists import enumerate_words
from limbeck.errors import suggestion

_LONGEST_KEY = 200
"""Most characters of foreign text in a message."""


class Strict(BaseModel):
    """The base of all parts of a recipe: frozen, and an unknown key is refused with the nearest one.

    The docstring below a field is its description.
    """

    # Validators are built when they are first used: most commands need a few of the many there are.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys that users often put here although they belong to another part: key to its path there, for the message."""

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
        """Validate, and report wrong keys together with the mistakes in the values of the other keys."""
        # A part may also be made of an object of its class, which has no wrong keys.
        if not isinstance(data, dict):
            return validate(data)
        messages_by_key = _find_wrong_keys(cls, data)
        if not messages_by_key:
            return validate(data)

        # The error has a line for each wrong key, and then pydantic's lines on the values of the other keys.
        lines = [_make_error_line((), message, data) for message in messages_by_key.values()]
        other_keys = {key: value for key, value in data.items() if key not in messages_by_key}
        try:
            validate(other_keys)
        except ValidationError as error:
            for item in error.errors():
                # Only because the wrong keys were left out, keys may be missing and a rule on the whole part (which has
                # no place) may fail. The user made neither mistake.
                is_on_a_value = bool(item["loc"]) and item["type"] != "missing"
                if is_on_a_value:
                    line = _make_error_line(item["loc"], item["msg"], item["input"], item["type"], item.get("ctx"))
                    lines.append(line)
        raise ValidationError.from_exception_data(cls.__name__, lines)


@cache
def descriptions(cls: type[BaseModel]) -> dict[str, str]:
    """The description of each field: the argument `description` of the field, or else the docstring below it.

    Docstrings are read when they are needed. Pydantic's own option reads those of all classes as these are made, which
    takes a tenth of the time of a command that is refused.
    """
    # A field stands in the class that defines it, so the docstrings of all bases are read. The class itself comes last.
    docstrings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Strict):
            docstrings_by_class = _read_docstrings(base.__module__)
            docstrings |= docstrings_by_class.get(base.__name__, {})
    described = {}
    for name, field in cls.model_fields.items():
        described[_key_of(name, field)] = field.description or docstrings.get(name, "")
    return described


def keys_of(cls: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a part by the keys of documents."""
    return {_key_of(name, field): field for name, field in cls.model_fields.items()}


def _key_of(name: str, field: FieldInfo) -> str:
    """Return the key of a field in documents: its alias or its name. Keys that are words of Python need an alias."""
    return field.alias or name


@cache
def _read_docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of each class of a module, by class and field; empty without its source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    docstrings: dict[str, dict[str, str]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        # A field `name: type = default`, directly followed by a string.
        for statement, following in pairwise(node.body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                    docstrings.setdefault(node.name, {})[name] = inspect.cleandoc(docstring)
    return docstrings


def _find_wrong_keys(cls: type[Strict], data: dict[Any, Any]) -> dict[Any, str]:
    """Make a message on each key that is unknown, or has true or false as a value where that has no meaning."""
    messages_by_key: dict[Any, str] = {}
    # The message on the first unknown key also names the missing keys, since it may be one of them, misspelt.
    missing = _describe_missing_keys(cls, data)
    for key, value in data.items():
        if key not in keys_of(cls):
            messages_by_key[key] = f"unknown key '{str(key)[:_LONGEST_KEY]}'.{_hint_on_key(cls, key)}{missing}"
            missing = ""
            continue
        # Pydantic would accept true as the number 1, and YAML reads the words yes and on as true.
        annotation = keys_of(cls)[key].annotation
        if isinstance(value, bool) and not _accepts_booleans(annotation):
            written = str(value).lower()
            messages_by_key[key] = f"{key} is {written}, which has no meaning here: give {_describe_type(annotation)}"
    return messages_by_key


def _hint_on_key(cls: type[Strict], key: Any) -> str:
    """Suggest what an unknown key was meant to be: a key of another part, or the nearest key of this part."""
    place = cls.elsewhere.get(key)
    if place is not None:
        return f" Did you mean '{place}'?"
    return suggestion(str(key), keys_of(cls))


def _make_error_line(
    place: tuple[int | str, ...],
    message: str,
    value: Any,
    error_type: str = "value_error",
    context: Mapping[str, Any] | None = None,
) -> InitErrorDetails:
    """Make a line of pydantic's error.

    Args:
        place: The keys that lead to the value.
        message: The mistake in words.
        value: The value.
        error_type: Pydantic's name for the mistake.
        context: Pydantic's values of the mistake, such as a bound.
    """
    # The message is a value of the template: written as the template itself, its braces would be read as fields.
    error = PydanticCustomError(error_type, "{message}", {**(context or {}), "message": message})
    return InitErrorDetails(type=error, loc=place, input=value)


def _accepts_booleans(annotation: Any) -> bool:
    """Whether true and false are values of a type, or of a type within it such as `bool | None`."""
    if annotation in (bool, Any):
        return True
    return any(_accepts_booleans(inner) for inner in get_args(annotation))


def _describe_missing_keys(cls: type[BaseModel], data: dict[Any, Any]) -> str:
    """Write a sentence on the required keys that are not given; empty where all are given."""
    names = [name for name, field in keys_of(cls).items() if field.is_required() and name not in data]
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    return f" {' and '.join(names)} {verb} missing."


def _describe_type(annotation: Any) -> str:
    """Describe in a message what a key of a type takes.

    It takes names (`Literal`), text, a list, or a mapping for a part of a recipe. Any other type is "a value".
    """
    only_type = _without_constraints(annotation)
    is_union = get_origin(only_type) in (Union, UnionType)
    if is_union:
        # Of `X | None` only X counts.
        members = [member for member in get_args(only_type) if member is not NoneType]
        if len(members) != 1:
            return "a value"
        only_type = _without_constraints(members[0])

    if only_type is str:
        return "text, in quotation marks where YAML reads it as true or false"
    if get_origin(only_type) is Literal:
        names = [str(name) for name in get_args(only_type)]
        return enumerate_words(names, "or")
    if get_origin(only_type) is list:
        return _describe_list(only_type)
    if isinstance(only_type, type) and issubclass(only_type, BaseModel):
        first_field = next(iter(only_type.model_fields))
        return "a mapping such as {" + first_field + ": …}"
    return "a value"


def _without_constraints(annotation: Any) -> Any:
    """Return X for `Annotated[X, …]`, and any other type as it is."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    return annotation


def _describe_list(list_type: Any) -> str:
    """Describe a type such as `list[str]` in a message, with an example where the items have names (`Literal`)."""
    item_type = _without_constraints(get_args(list_type)[0])
    if get_origin(item_type) is Literal:
        first_name = get_args(item_type)[0]
        return f"a list such as [{first_name}]"
    return "a list"
