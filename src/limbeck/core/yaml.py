"""YAML as people write it: plain values, each key once, no tags, of bounded size and depth."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from limbeck.errors import LimbeckError, RecipeError

MOST_CHARACTERS = 2**20
"""Most characters of a document; the longest that people write have some thousands."""
MOST_VALUES = 50_000
"""Most values of a document, counted after each alias (`*name`) is replaced by the values that it stands for."""
DEEPEST = 50
"""Most levels of lists and mappings within each other."""
MOST_DIGITS = 300
"""Most characters of a number; the largest finite float of 64 bits has 309 digits."""

_INT_TAG = "tag:yaml.org,2002:int"
_FLOAT_TAG = "tag:yaml.org,2002:float"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
# Numbers as YAML 1.2 has them: 1e-4 is a number, 1:30 and 2026-01-02 are text. `_INT_PATTERN` matches 0, -12, 1_000
# and 0x1f, `_FLOAT_PATTERN` matches 1., 2.5e3, 1e-4, .5, -.inf and .nan.
_INT_PATTERN = re.compile(r"^[-+]?(?:0|[1-9](?:_?[0-9])*|0x[0-9a-fA-F]+)$")
_FLOAT_PATTERN = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)
_LONGEST_SHOWN = 200
"""Most characters of foreign text in a message."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML without tags or code, in bounded time and memory.

    Args:
        text: The document.
        origin: Where it comes from, for the message.

    Raises:
        RecipeError: with the line, if it is not YAML, has a tag or the same key twice, or exceeds one of the bounds
            above.
    """
    if len(text) > MOST_CHARACTERS:
        raise RecipeError(
            f"{origin} has more than {MOST_CHARACTERS:,} characters, the most that limbeck reads; shorten the file."
        )
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}"
        raise RecipeError(f"{origin} is not valid YAML{where}: {_reason(error)}.") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise RecipeError(f"{origin} cannot be read as YAML: {str(error)[:_LONGEST_SHOWN]}.") from None


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
        # A pipe or a device may never end.
        if path.exists() and not path.is_file():
            description = "folder" if path.is_dir() else "special file"
            raise error(f"{origin} cannot be read: it is a {description}.")
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise error(f"{origin} does not exist; {missing}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"{origin} cannot be read: {reason}.") from None
    return parse_yaml(text, origin)


def dump_yaml(data: Any) -> str:
    """Write plain values as YAML that reads back to the same, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also refuses tags, duplicate keys and documents that grow when they are read.

    The methods override those of PyYAML, which calls them as it scans, composes and constructs a document.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def fetch_tag(self) -> None:
        raise _problem("tags (!) are not supported", self.get_mark())

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise _problem(
                f"more than {DEEPEST} levels of nested lists and mappings; no key of limbeck is that deep",
                self.peek_event().start_mark,
            )
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
        """Make a mapping, and refuse a key that appears twice, of which PyYAML would take the last value."""
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            # A merge (<<) may stand more than once.
            if key_node.tag == _MERGE_TAG:
                continue
            key = self.construct_object(key_node, deep=True)
            # PyYAML refuses a key that cannot be one, such as a list, when it makes the mapping.
            if key is None or not isinstance(key, Hashable):
                continue
            if key in keys:
                raise _problem(f"the key '{str(key)[:80]}' appears twice", key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        value = super().construct_scalar(node)
        if _SURROGATE.search(value):
            # JSON writes some characters as two escapes ("\\ud83d\\ude00"), which are halves of one character.
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return value

    def read_number(self, node: yaml.ScalarNode) -> int | float:
        """Make the value of a number, and refuse one that is too long."""
        if len(node.value) > MOST_DIGITS:
            raise _problem(f"a number of more than {MOST_DIGITS} digits", node.start_mark)
        if node.tag == _INT_TAG:
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes every text that YAML 1.1 or 1.2 would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# PyYAML gives an unquoted value the type (a *tag*) of the first pattern that matches it. It keeps pairs of tag and
# pattern, which it calls resolvers, in lists by the first character of the values that the pattern is for.
_STARTS_OF_INTS = list("-+0123456789")
_STARTS_OF_FLOATS = list("-+.0123456789")


def _read_numbers_of_yaml_1_2() -> None:
    """Let the loader read numbers by the patterns of YAML 1.2, and dates as text."""
    # The loader inherits PyYAML's resolvers. Those of numbers and dates are of YAML 1.1, and are left out.
    left_out_tags = (_INT_TAG, _FLOAT_TAG, _TIMESTAMP_TAG)
    resolvers_by_start = {}
    for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items():
        resolvers_by_start[start] = [(tag, pattern) for tag, pattern in resolvers if tag not in left_out_tags]
    _Loader.yaml_implicit_resolvers = resolvers_by_start
    _Loader.add_implicit_resolver(_INT_TAG, _INT_PATTERN, _STARTS_OF_INTS)
    _Loader.add_implicit_resolver(_FLOAT_TAG, _FLOAT_PATTERN, _STARTS_OF_FLOATS)

    # A value with one of these tags is made by `read_number`, which bounds its length first.
    _Loader.add_constructor(_INT_TAG, _Loader.read_number)
    _Loader.add_constructor(_FLOAT_TAG, _Loader.read_number)


def _quote_numbers_of_yaml_1_2() -> None:
    """Let the dumper quote texts such as `1e-4`, which YAML 1.2 would read as numbers."""
    # The dumper quotes each text that a pattern matches. It keeps its patterns of YAML 1.1, so that a text remains a
    # text for readers of either version.
    _Dumper.add_implicit_resolver(_FLOAT_TAG, _FLOAT_PATTERN, _STARTS_OF_FLOATS)


_read_numbers_of_yaml_1_2()
_quote_numbers_of_yaml_1_2()


def _count_values(node: yaml.Node, counts: dict[int, int | None]) -> int:
    """Count the values that a node stands for, those of its aliases included.

    Args:
        node: The node.
        counts: The counts so far, by the ids of nodes; None marks a node whose values are being counted.

    Raises:
        YAMLError: if they are too many, or the node contains itself.
    """
    if id(node) in counts:
        known = counts[id(node)]
        if known is None:
            raise _problem("an alias that contains itself", node.start_mark)
        return known
    counts[id(node)] = None
    count = 1
    for child in _children_of(node):
        count += _count_values(child, counts)
        if count > MOST_VALUES:
            problem = f"aliases and lists that stand for more than {MOST_VALUES:,} values"
            raise _problem(problem, node.start_mark)
    counts[id(node)] = count
    return count


def _children_of(node: yaml.Node) -> list[yaml.Node]:
    """Return the nodes within a node: keys and values of a mapping, items of a list, none of a single value."""
    if isinstance(node, yaml.MappingNode):
        children = []
        for key, value in node.value:
            children += [key, value]
        return children
    if isinstance(node, yaml.CollectionNode):
        return list(node.value)
    return []


def _problem(text: str, mark: Any) -> yaml.YAMLError:
    """Return PyYAML's error of a problem at a place in the document."""
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def _reason(error: yaml.YAMLError) -> str:
    """Return the problem in one line: as the parser names it, or the first line of its message."""
    problem = getattr(error, "problem", None)
    if problem:
        return str(problem)
    lines = str(error).splitlines()
    if not lines:
        return type(error).__name__
    return lines[0]
