"""The sources of a mix that a pattern of file names stands for, such as `data/{language}.txt.xz`.

The `{language}` is a *placeholder*. Each of its *values* (`en`, `fr`) gives a source: the pattern with the value in the
place of the placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import escape, has_magic

from limbeck.corpus.files.addresses import file_system, is_remote, one_line_errors
from limbeck.corpus.messages import safe_name
from limbeck.corpus.sources.file_sources import ANY_TEXT_COLUMN, expand_home, find_files
from limbeck.corpus.sources.named_sources import SOURCES, source_kind
from limbeck.errors import CorpusError

_WAY_OUT = "check the pattern, or give a single source without a mix."
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PLACEHOLDER_OR_WILDCARD = re.compile(r"(\{\w+\}|\*\*/?|\*|\?|\[[^]]*\])")
_EXPRESSION_OF_WILDCARD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_ANY_CHARACTER_OF_A_NAME = "[^/]"
# A placeholder next to a wildcard or to another placeholder, so that the end of its value is not known.
_NO_BORDER = re.compile(r"[*?\]]\{|\}[*?[{]")


def find_sources(pattern: str) -> dict[str, str]:
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
    glob_pattern = _PLACEHOLDER.sub("*", pattern)
    try:
        files = find_files(glob_pattern, ANY_TEXT_COLUMN).files
    except CorpusError as error:
        raise CorpusError(f"{shown}: {error}") from None

    # Several files may have the same value, such as the files of one language.
    full_pattern = _spelt_like_files(pattern)
    values_of_files = _values_in(full_pattern, [str(file) for file in files])
    values = sorted(set(values_of_files))
    if not values:
        raise CorpusError(f"{shown} finds no file: {_WAY_OUT}")
    if len(values) == 1:
        raise CorpusError(f"{shown} finds {name} '{safe_name(values[0])}' alone: {_WAY_OUT}")

    placeholder = f"{{{name}}}"
    has_wildcards = has_magic(full_pattern.replace(placeholder, ""))
    if not has_wildcards:
        return {value: full_pattern.replace(placeholder, value) for value in values}

    # With wildcards a source is a glob pattern, in which a character of the value such as [ would be a wildcard too.
    source_of_value = {value: full_pattern.replace(placeholder, escape(value)) for value in values}
    # A file that the sources of two values match would be read twice.
    files_of_sources = sum(len(find_files(source, ANY_TEXT_COLUMN).files) for source in source_of_value.values())
    if files_of_sources != len(values_of_files):
        raise CorpusError(
            f"{shown} matches a file in two ways, so its value is not clear: use fewer wildcards, or name the folders."
        )
    return source_of_value


def _placeholder_of(pattern: str, shown: str) -> str:
    """Return the name of a pattern's placeholder, such as `language`.

    Args:
        pattern: The pattern.
        shown: The setting with the pattern, as messages show it.

    Raises:
        CorpusError: if there is no placeholder, there are several, or the end of a value is not known.
    """
    names: list[str] = list(dict.fromkeys(_PLACEHOLDER.findall(pattern)))
    if len(names) != 1:
        problem = "no placeholder"
        if names:
            problem = f"the placeholders {', '.join(names)}"
        raise CorpusError(
            f"{shown} has {problem}, but needs exactly one: write it as in data/{{language}}.txt.xz, and * for "
            "other parts that vary."
        )
    # A pattern with the form of another kind of source, such as `hub:owner/{name}`, names no files.
    names_files = source_kind(pattern) is SOURCES["files"]
    if not names_files:
        raise CorpusError(
            f"{shown} is not a pattern of paths or addresses: list such sources in corpus.sources, with mix.weights."
        )
    if _NO_BORDER.search(pattern):
        raise CorpusError(
            f"{shown} does not say where {names[0]} begins and ends: put one of / - _ . beside the placeholder."
        )
    return names[0]


def _spelt_like_files(pattern: str) -> str:
    """Return a pattern in the spelling of the paths or addresses that are found by it, so that these match it."""
    if not is_remote(pattern):
        return str(expand_home(pattern))
    with one_line_errors(f"Cannot reach '{safe_name(pattern)}'"):
        system, name = file_system(pattern)
        return str(system.unstrip_protocol(name))


def _values_in(pattern: str, files: Sequence[str]) -> list[str]:
    """Return the values of a pattern's placeholder in the paths of files.

    Args:
        pattern: The pattern.
        files: The paths. A path that matches the pattern has a value, and so has one below a folder that matches it.
            Others are passed over.
    """
    path_below_match = "(?:/.*)?"
    if pattern.endswith("}"):
        # Files that are read have a suffix, so a placeholder at the end of the pattern is the name of a folder.
        path_below_match = "/.+"
    expression = re.compile(_expression_of(pattern) + path_below_match, re.DOTALL)
    values: list[str] = []
    for file in files:
        match = expression.fullmatch(file)
        if match is not None:
            values.append(match["value"])
    return values


def _expression_of(pattern: str) -> str:
    """Return a regular expression for the paths that match a pattern; its group `value` is the placeholder's value."""
    expression = ""
    has_value = False
    # The capturing group of the expression makes `split` return placeholders and wildcards too, between the other text.
    for part in _PLACEHOLDER_OR_WILDCARD.split(pattern):
        if _PLACEHOLDER.fullmatch(part):
            # A placeholder that occurs again stands for the same value.
            expression += "(?P=value)" if has_value else "(?P<value>[^/]+?)"
            has_value = True
        elif _PLACEHOLDER_OR_WILDCARD.fullmatch(part):
            # A class such as [a-f] was matched when the file was found, so any character may stand in its place here.
            expression += _EXPRESSION_OF_WILDCARD.get(part, _ANY_CHARACTER_OF_A_NAME)
        else:
            expression += re.escape(part)
    return expression
