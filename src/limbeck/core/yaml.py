"""YAML as people write it: plain values, each key once, no tags, of bounded size and depth."""

import ast
import inspect
import re
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from limbeck.errors import LimbeckError, RecipeError, join_mistakes, suggestion

MOST_CHARACTERS = 2**20
"""Of a document; the longest that people write have some thousands."""
MOST_VALUES = 50_000
"""That a document may stand for once its aliases are put in."""
DEEPEST = 50
"""Levels of lists and mappings in each other."""
MOST_DIGITS = 300
"""Of a number; those of the largest finite one of 64 bits are 309."""

_INT, _FLOAT, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("int", "float", "merge"))
_OLD_TAGS = (_INT, _FLOAT, "tag:yaml.org,2002:timestamp")
# As YAML 1.2 has them: 1e-4 is a number, 1:30 and 2026-01-02 are text.
_WHOLE_NUMBER = re.compile(r"^[-+]?(?:0|[1-9](?:_?[0-9])*|0x[0-9a-fA-F]+)$")
_BROKEN_NUMBER = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)


def _problem(text: str, mark: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(None, None, text, mark)


class _Loader(yaml.SafeLoader):
    """Safe YAML without what no recipe needs: tags, keys that stand twice, values that grow when they are read."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def fetch_tag(self) -> None:
        raise _problem("tags (!) are not supported", self.get_mark())

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise _problem(f"more than {DEEPEST} levels of lists and mappings", self.peek_event().start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count_values(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = None if key_node.tag == _MERGE else self.construct_object(key_node, deep=True)
            if key is not None and isinstance(key, Hashable):
                if key in seen:
                    raise _problem(f"the key '{str(key)[:80]}' appears twice", key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)

    def read_number(self, node: yaml.ScalarNode) -> int | float:
        if len(node.value) > MOST_DIGITS:
            raise _problem(f"a number of more than {MOST_DIGITS} digits", node.start_mark)
        return self.construct_yaml_int(node) if node.tag == _INT else self.construct_yaml_float(node)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag not in _OLD_TAGS]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, _WHOLE_NUMBER, list("-+0123456789"))
_Loader.add_implicit_resolver(_FLOAT, _BROKEN_NUMBER, list("-+.0123456789"))
for _tag in (_INT, _FLOAT):
    _Loader.add_constructor(_tag, _Loader.read_number)


class _Dumper(yaml.SafeDumper):
    """Quotes what any YAML reader, this one included, would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(_FLOAT, _BROKEN_NUMBER, list("-+.0123456789"))


def _count_values(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Count the values that a node stands for; None marks a node whose values are being counted.

    Raises:
        YAMLError: if they are too many, or the node contains itself.
    """
    if id(node) in known:
        count = known[id(node)]
        if count is None:
            raise _problem("an alias that contains itself", node.start_mark)
        return count
    known[id(node)] = None
    children = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    count = 1
    if isinstance(node, yaml.CollectionNode):
        for child in children:
            count += _count_values(child, known)
            if count > MOST_VALUES:
                problem = f"aliases and lists that stand for more than {MOST_VALUES:,} values"
                raise _problem(problem, node.start_mark)
    known[id(node)] = count
    return count


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML without tags or code, in bounded time and memory.

    Args:
        text: The document.
        origin: Where it comes from, for the message.

    Raises:
        RecipeError: if it is not YAML, has a tag or a key that stands twice, or is larger than people write, naming
            the line.
    """
    if len(text) > MOST_CHARACTERS:
        raise RecipeError(f"{origin} has more than {MOST_CHARACTERS:,} characters; shorten it.")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or next(iter(str(error).splitlines()), type(error).__name__)
        raise RecipeError(f"{origin} is not valid YAML{where}: {problem}.") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise RecipeError(f"{origin} cannot be read as YAML: {str(error)[:200]}.") from None


def read_document(path: Path, origin: str, missing: str, error: type[LimbeckError] = RecipeError) -> Any:
    """Read and parse a YAML file.

    Args:
        path: The file.
        origin: Name of the source for the message, such as "Recipe 'a.yaml'".
        missing: The way out where there is no such file; ends the message.
        error: Raised for a file that cannot be read.

    Raises:
        LimbeckError: `error` if there is no ordinary file of UTF-8 text; else see `parse_yaml`.
    """
    try:
        if path.exists() and not path.is_file():  # A pipe or a device may never end.
            raise error(f"{origin} cannot be read: it is a {'folder' if path.is_dir() else 'special file'}.")
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise error(f"{origin} does not exist; {missing}") from None
    except (OSError, ValueError) as problem:
        raise error(f"{origin} cannot be read: {getattr(problem, 'strerror', None) or problem}.") from None
    return parse_yaml(text, origin)


def dump_yaml(data: Any) -> str:
    """Write plain values as YAML that reads back to the same, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


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


# Validation errors in one line: the place, what is wrong, what was given.


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
