"""Commands, functions and classes as plain values that JSON can hold."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def command_tree(command: Any) -> dict[str, Any]:
    """Describe a command of typer with its options and the commands below it."""
    types = get_type_hints(inspect.unwrap(command.callback), include_extras=True) if command.callback else {}
    return {
        "help": inspect.cleandoc(command.help or ""),
        "epilog": command.epilog or "",
        "panel": getattr(command, "rich_help_panel", None) or "",
        "hidden": command.hidden,
        "options": [_option(parameter, types.get(parameter.name)) for parameter in command.params],
        "commands": {name: command_tree(child) for name, child in getattr(command, "commands", {}).items()},
    }


def _option(parameter: Any, kind: Any) -> dict[str, Any]:
    # Of the annotation, since versions of typer keep types in different places.
    info = next(iter(getattr(kind, "__metadata__", ())), None)
    bounds = {name: getattr(info, name, None) for name in ("min", "max", "clamp", "exists")}
    bounds |= {f"not {name}": not getattr(info, name, True) for name in ("file_okay", "dir_okay")}
    described = {
        **bounds,
        "name": parameter.name,
        "type": _type(kind),
        "written": " ".join([*parameter.opts, *parameter.secondary_opts]),
        "argument": parameter.param_type_name == "argument",
        "required": parameter.required,
        "multiple": bool(getattr(parameter, "multiple", False)),
        "nargs": parameter.nargs if parameter.nargs != 1 else None,
        "flag": bool(getattr(parameter, "is_flag", False)),
        "hidden": bool(getattr(parameter, "hidden", False)),
        "metavar": parameter.metavar,
        "environment": parameter.envvar,
        "panel": getattr(parameter, "rich_help_panel", None),
        "help": getattr(parameter, "help", None),
    }
    # Most options have few of these.
    return {name: value for name, value in described.items() if value} | {"default": plain(parameter.default)}


def public_names(module: Any) -> dict[str, Any]:
    """Describe what a module names in `__all__`."""
    return {name: described(getattr(module, name)) for name in sorted(module.__all__)}


def described(value: Any) -> Any:
    """Describe a function by its parameters, a class by its constructor and public members, the rest by its type."""
    is_alias = get_origin(value) is not None or value is str
    if is_alias:
        return _type(value)
    if inspect.isclass(value):
        return _class(value)
    return _signature(value) if callable(value) else f"a {type(value).__name__}"


def _class(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {"class of": [base.__name__ for base in kind.__bases__]}
    if issubclass(kind, BaseModel):
        found["fields"] = {
            name: f"{_type(field.annotation)} = {_field_default(field)}" for name, field in kind.model_fields.items()
        }
    else:
        found["constructor"] = _signature(kind)
    for name, member in inspect.getmembers_static(kind):
        if not name.startswith("_") and _is_ours(kind, name):
            unwrapped = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if isinstance(unwrapped, property):
                found[name] = "property"
            elif inspect.isfunction(unwrapped):
                found[name] = _signature(unwrapped)
    return found


def _is_ours(kind: type, name: str) -> bool:
    homes = (base for base in kind.__mro__ if name in vars(base))
    return next(homes).__module__.partition(".")[0] == "limbeck"


def _signature(value: Any) -> dict[str, Any]:
    signature = inspect.signature(value)
    return {
        "parameters": [_parameter(parameter) for parameter in signature.parameters.values()],
        "returns": _annotation(signature.return_annotation),
    }


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is inspect.Parameter.empty else f" = {_text(parameter.default)}"
    named = " (by name)" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
    return f"{stars}{parameter.name}: {_annotation(parameter.annotation)}{default}{named}"


def _field_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return _text(field.default) if field.default_factory is None else f"{_text(field.default_factory)} made anew"


def _annotation(value: Any) -> str:
    return "" if value is inspect.Signature.empty else _type(value)


def _type(value: Any) -> str:
    """Return a type as it is written, the same in every version of Python, without validators."""
    origin, inner = get_origin(value), get_args(value)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(_type(part) for part in inner)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if isinstance(value, list):  # The parameters of a Callable.
        return f"[{', '.join(map(_type, value))}]"
    if origin is not None and inner:
        return f"{getattr(origin, '__name__', origin)}[{', '.join(map(_type, inner))}]"
    return {NoneType: "None", Ellipsis: "..."}.get(value) or _text(value)


def _text(value: Any) -> str:
    """Return a value's text without the places of modules and memory, which are no part of an interface."""
    if isinstance(value, str):
        return value
    if inspect.isclass(value) and not hasattr(value, "__args__"):
        return value.__name__
    if inspect.isfunction(value):
        return f"{value.__name__}()"
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", _ADDRESS.sub("", repr(value)))


def plain(value: Any) -> Any:
    """Return nested dataclasses and containers as JSON holds them; functions and classes by their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        small = not any(isinstance(item, dict | list) and item for item in found.values())
        # On one line, for there are thousands.
        return ", ".join(f"{name} = {item!r}" for name, item in found.items()) if small else found
    if isinstance(value, Mapping):
        return {_text(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return plain(value.value)
    return value if value is None or isinstance(value, str | int | float | bool) else _text(value)
