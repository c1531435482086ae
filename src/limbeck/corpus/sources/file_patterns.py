"""Sources of a mix by a pattern of file names with a placeholder, such as `data/{language}.txt.xz`."""

from __future__ import annotations

import re
from glob import escape, has_magic

from limbeck.corpus.files.addresses import file_system, is_remote, reaching
from limbeck.corpus.messages import safe_name
from limbeck.corpus.sources.file_sources import expand_home, find_files
from limbeck.corpus.sources.named_sources import SOURCES, source_kind
from limbeck.errors import CorpusError

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# What a pattern is made of: placeholders, and wildcards as regular expressions.
_IN_PATTERN = re.compile(r"(\{\w+\}|\*\*/?|\*|\?|\[[^]]*\])")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
# A placeholder beside a wildcard, or beside another placeholder.
_NO_BORDER = re.compile(r"[*?\]]\{|\}[*?[{]")


def find_parts(pattern: str) -> dict[str, str]:
    """Find the sources that a pattern of file names stands for: one for each value of its placeholder, sorted.

    `data/{language}.txt.xz`, `data/{language}/` and `data/{language}-*.jsonl` give a source a language. A value is as
    short as can be, and lies within one file or folder name.

    Args:
        pattern: Path or address with one placeholder, once or more often, and any wildcards.

    Returns:
        Value to source.

    Raises:
        CorpusError: if the pattern has no placeholder or several, matches no file, gives one part alone, or does not
            say which part a file belongs to.
    """
    shown = f"mix.by '{safe_name(pattern)}'"
    name = _placeholder_of(pattern, shown)
    try:
        files = find_files(_PLACEHOLDER.sub("*", pattern), "").files
    except CorpusError as error:
        raise CorpusError(f"{shown}: {error}") from None

    # Each file gives a value of the placeholder.
    shape = _address_of(pattern) if is_remote(pattern) else str(expand_home(pattern))
    # Where a placeholder is last it is a folder's name: files that are read have a suffix.
    below = "/.+" if shape.endswith("}") else "(?:/.*)?"
    expression = re.compile(_expression_of(shape) + below, re.DOTALL)
    matches = [expression.fullmatch(str(file)) for file in files]
    value_of_file = [match["value"] for match in matches if match is not None]
    values = sorted(set(value_of_file))
    if len(values) < 2:
        result = f"{name} '{safe_name(values[0])}' alone" if values else "no file"
        raise CorpusError(f"{shown} finds {result}: check the pattern, or give a single source without a mix.")

    # Each value gives a source.
    placeholder = f"{{{name}}}"
    if not has_magic(shape.replace(placeholder, "")):
        return {value: shape.replace(placeholder, value) for value in values}
    parts = {value: shape.replace(placeholder, escape(value)) for value in values}
    if sum(len(find_files(part, "").files) for part in parts.values()) != len(value_of_file):
        raise CorpusError(f"{shown} matches a file in two ways: leave out wildcards, or name the folders.")
    return parts


def _placeholder_of(pattern: str, shown: str) -> str:
    """Return the name of a pattern's placeholder, and refuse a pattern that cannot be meant."""
    names = list(dict.fromkeys(_PLACEHOLDER.findall(pattern)))
    if len(names) != 1:
        placeholders = f"the placeholders {', '.join(names)}" if names else "no placeholder"
        raise CorpusError(f"{shown} has {placeholders}: write one, as in data/{{language}}.txt.xz, and * for the rest.")
    if source_kind(pattern) is not SOURCES["files"]:
        raise CorpusError(f"{shown} is not a path or address: list other sources in corpus.sources, with weights.")
    if _NO_BORDER.search(pattern):
        raise CorpusError(f"{shown} does not say where {names[0]} begins and ends: put a / - _ or . beside it.")
    name: str = names[0]
    return name


def _address_of(text: str) -> str:
    """Return an address as its file system writes those of files."""
    with reaching(f"Cannot reach '{safe_name(text)}'"):
        system, name = file_system(text)
        return str(system.unstrip_protocol(name))


def _expression_of(pattern: str) -> str:
    """Return the regular expression that finds the value of a placeholder in a path that its glob pattern matches."""
    expression = ""
    has_value = False
    for part in _IN_PATTERN.split(pattern):
        if _PLACEHOLDER.fullmatch(part):
            # The placeholder stands for the same value wherever it stands.
            expression += "(?P=value)" if has_value else "(?P<value>[^/]+?)"
            has_value = True
        elif _IN_PATTERN.fullmatch(part):
            # Which letters a class has is the glob's to know.
            expression += _WILDCARDS.get(part, "[^/]")
        else:
            expression += re.escape(part)
    return expression
