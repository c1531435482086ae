"""The sources of a mix that a pattern of file names stands for, such as `data/{language}.txt.xz`.

The `{language}` is a *placeholder*: each of its *values* (`en`, `fr`) gives a source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import escape, has_magic

from limbeck.corpus.files.addresses import file_system, is_remote, one_line_errors
from limbeck.corpus.messages import safe_name
from limbeck.corpus.sources.file_sources import expand_home, find_files
from limbeck.corpus.sources.named_sources import SOURCES, source_kind
from limbeck.errors import CorpusError

_WAY_OUT = "check the pattern, or give a single source without a mix."
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# A placeholder or a wildcard in a pattern, and the regular expressions of wildcards.
_IN_PATTERN = re.compile(r"(\{\w+\}|\*\*/?|\*|\?|\[[^]]*\])")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
# A placeholder next to a wildcard or to another placeholder, so that the end of its value is not known.
_NO_BORDER = re.compile(r"[*?\]]\{|\}[*?[{]")


def find_parts(pattern: str) -> dict[str, str]:
    """Find the sources that a pattern of file names stands for: one for each value of its placeholder.

    `data/{language}.txt.xz`, `data/{language}/` and `data/{language}-*.jsonl` each give one source per language. A
    value is as short as possible, and lies within one file or folder name.

    Args:
        pattern: Path or address with one placeholder, which may occur several times, and any wildcards.

    Returns:
        Value → source, sorted by value.

    Raises:
        CorpusError: if the pattern has no placeholder or several different ones, matches no file, has only one value,
            or does not decide to which source a file belongs.
    """
    shown = f"mix.by '{safe_name(pattern)}'"
    name = _placeholder_of(pattern, shown)
    try:
        files = find_files(_PLACEHOLDER.sub("*", pattern), "").files
    except CorpusError as error:
        raise CorpusError(f"{shown}: {error}") from None

    # Each file gives a value of the placeholder.
    path = _address_of(pattern) if is_remote(pattern) else str(expand_home(pattern))
    values_of_files = _values_in(path, [str(file) for file in files])
    values = sorted(set(values_of_files))
    if not values:
        raise CorpusError(f"{shown} finds no file: {_WAY_OUT}")
    if len(values) == 1:
        raise CorpusError(f"{shown} finds {name} '{safe_name(values[0])}' alone: {_WAY_OUT}")

    # The source of a value is the pattern with the value in the place of the placeholder. The sources together must
    # have each file once.
    placeholder = f"{{{name}}}"
    has_wildcards = has_magic(path.replace(placeholder, ""))
    if not has_wildcards:
        return {value: path.replace(placeholder, value) for value in values}
    parts = {value: path.replace(placeholder, escape(value)) for value in values}
    files_of_parts = sum(len(find_files(part, "").files) for part in parts.values())
    if files_of_parts != len(values_of_files):
        raise CorpusError(f"{shown} matches a file in two ways: leave out wildcards, or name the folders.")
    return parts


def _values_in(pattern: str, files: Sequence[str]) -> list[str]:
    """Return the value of a pattern's placeholder in each file that matches the pattern, or is below such a folder."""
    below = "(?:/.*)?"
    if pattern.endswith("}"):
        # Files that are read have a suffix, so a placeholder at the end of the pattern is the name of a folder.
        below = "/.+"
    expression = re.compile(_expression_of(pattern) + below, re.DOTALL)
    values: list[str] = []
    for file in files:
        match = expression.fullmatch(file)
        if match is not None:
            values.append(match["value"])
    return values


def _placeholder_of(pattern: str, shown: str) -> str:
    """Return the name of a pattern's placeholder.

    Args:
        pattern: The pattern.
        shown: The pattern as messages show it.

    Raises:
        CorpusError: if there is no placeholder, there are several, or the end of a value is not known.
    """
    names: list[str] = list(dict.fromkeys(_PLACEHOLDER.findall(pattern)))
    if len(names) != 1:
        problem = "no placeholder"
        if names:
            problem = f"the placeholders {', '.join(names)}"
        raise CorpusError(f"{shown} has {problem}: write one, as in data/{{language}}.txt.xz, and * for the rest.")
    if source_kind(pattern) is not SOURCES["files"]:
        raise CorpusError(f"{shown} is not a path or address: list other sources in corpus.sources, with weights.")
    if _NO_BORDER.search(pattern):
        raise CorpusError(f"{shown} does not say where {names[0]} begins and ends: put a / - _ or . beside it.")
    return names[0]


def _address_of(text: str) -> str:
    """Return an address in the spelling in which its file system returns the addresses of files."""
    with one_line_errors(f"Cannot reach '{safe_name(text)}'"):
        system, name = file_system(text)
        return str(system.unstrip_protocol(name))


def _expression_of(pattern: str) -> str:
    """Return the regular expression that finds the value of a placeholder in a path that its glob pattern matches."""
    expression = ""
    has_value = False
    for part in _IN_PATTERN.split(pattern):
        if _PLACEHOLDER.fullmatch(part):
            # A placeholder that occurs again stands for the same value.
            expression += "(?P=value)" if has_value else "(?P<value>[^/]+?)"
            has_value = True
        elif _IN_PATTERN.fullmatch(part):
            # A class such as [a-f] has matched already, so any character may stand in its place here.
            expression += _WILDCARDS.get(part, "[^/]")
        else:
            expression += re.escape(part)
    return expression
