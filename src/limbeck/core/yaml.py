"""YAML as people write it: plain values, each key once, no tags, of bounded size and depth."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from limbeck.errors import LimbeckError, RecipeError

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


# Validation errors in one line: the place, what is wrong, what was given.
