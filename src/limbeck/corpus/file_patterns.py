"""Sources of a mix by a pattern of file names with a placeholder, such as `data/{language}.txt.xz`."""

from __future__ import annotations

import re
from glob import escape, has_magic

from limbeck.corpus.addresses import file_system, is_remote, reaching
from limbeck.corpus.file_sources import find_files, path_of
from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_kinds import SOURCES, source_kind
from limbeck.errors import CorpusError

PLACEHOLDER = re.compile(r"\{(\w+)\}")

# What a pattern is made of: placeholders, and wildcards as regular expressions.
_IN_PATTERN = re.compile(r"(\{\w+\}|\*\*/?|\*|\?|\[[^]]*\])")

_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


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
    names = list(dict.fromkeys(PLACEHOLDER.findall(pattern)))
    if len(names) != 1:
        found = f"the placeholders {', '.join(names)}" if names else "no placeholder"
        raise CorpusError(f"{shown} has {found}: write one, as in data/{{language}}.txt.xz, and * for the rest.")
    if source_kind(pattern) is not SOURCES["files"]:
        raise CorpusError(f"{shown} is not a path or address: list other sources in corpus.sources, with weights.")
    if re.search(r"[*?\]]\{|\}[*?[{]", pattern):
        raise CorpusError(f"{shown} does not say where {names[0]} begins and ends: put a / - _ or . beside it.")
    try:
        files = find_files(PLACEHOLDER.sub("*", pattern), "").files
    except CorpusError as error:
        raise CorpusError(f"{shown}: {error}") from None
    shape = _address_of(pattern) if is_remote(pattern) else str(path_of(pattern))
    # Where a placeholder is last it is a folder's name: files that are read have a suffix.
    expression = re.compile(_expression_of(shape) + ("/.+" if shape.endswith("}") else "(?:/.*)?"), re.DOTALL)
    matches = [match["value"] for file in files if (match := expression.fullmatch(str(file)))]
    values = sorted(set(matches))
    if len(values) < 2:
        found = f"{names[0]} '{safe_name(values[0])}' alone" if values else "no file"
        raise CorpusError(f"{shown} finds {found}: check the pattern, or give a single source without a mix.")
    placeholder = f"{{{names[0]}}}"
    if not has_magic(shape.replace(placeholder, "")):
        return {value: shape.replace(placeholder, value) for value in values}
    parts = {value: shape.replace(placeholder, escape(value)) for value in values}
    if sum(len(find_files(part, "").files) for part in parts.values()) != len(matches):
        raise CorpusError(f"{shown} matches a file in two ways: leave out wildcards, or name the folders.")
    return parts


def _address_of(text: str) -> str:
    """Return an address as its file system writes those of files."""
    with reaching(f"Cannot reach '{safe_name(text)}'"):
        system, name = file_system(text)
        return str(system.unstrip_protocol(name))


def _expression_of(pattern: str) -> str:
    """Return the regular expression that finds the value of a placeholder in a path that its glob pattern matches."""
    written, again = "", False
    for part in _IN_PATTERN.split(pattern):
        if PLACEHOLDER.fullmatch(part):
            written += "(?P=value)" if again else "(?P<value>[^/]+?)"
            again = True
        elif _IN_PATTERN.fullmatch(part):
            written += _WILDCARDS.get(part, "[^/]")  # Which letters a class has is the glob's to know.
        else:
            written += re.escape(part)
    return written
