"""What a paper recipe is, and how it is written: a block of comments, then YAML in the order given."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

WIDTH = 110


class Noted(NamedTuple):
    """A value with a comment behind it.

    Args:
        value: The value.
        note: The comment, without its mark.
    """

    value: Any
    note: str


class Inline(dict[str, Any]):
    """A mapping that is written in one line."""


@dataclass(frozen=True)
class PaperRecipe:
    """One file: what it reproduces, and the recipe itself.

    Args:
        name: Name of the file without its suffix, and of the run.
        paper: The paper and its arXiv number.
        row: Table and row.
        measure: What the published numbers are of.
        published: Column to number, as printed; every column of the row.
        average: The number that the index shows.
        cost: What the run reads, for the index.
        body: The recipe without its name and output.
        chosen: What the paper leaves out, with what is taken here and why.
        differs: What cannot be as in the paper.
        also: Further lines: where the settings stand, other tables.
    """

    name: str
    paper: str
    row: str
    measure: str
    published: Mapping[str, str]
    average: str
    cost: str
    body: Mapping[str, Any]
    chosen: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The file."""
        document = {"name": self.name, "output": f"runs/papers/{self.name}", **self.body}
        return "\n".join([*self._header(), "", *_mapping(document, 0, spaced=True), ""])

    def _header(self) -> Iterator[str]:
        yield from _comment(f"{self.paper}, {self.row}.", first="")
        numbers = ", ".join(f"{column} {number}" for column, number in self.published.items())
        yield from _comment(f"Published ({self.measure}): {numbers}.")
        for line in self.also:
            yield from _comment(line)
        for title, lines in (("Chosen, where the paper is silent", self.chosen), ("Differs", self.differs)):
            if lines:
                yield from _comment(f"{title}: {'; '.join(lines)}.")


def _comment(text: str, *, first: str = "- ") -> list[str]:
    indent = " " * len(first)
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def _mapping(mapping: Mapping[str, Any], depth: int, *, spaced: bool = False) -> Iterator[str]:
    pad = "  " * depth
    for key, value in mapping.items():
        value, note = value if isinstance(value, Noted) else (value, "")
        behind = f"  # {note}" if note else ""
        nested = isinstance(value, dict) and not isinstance(value, Inline)
        if spaced and (nested or _is_block(value)):
            yield ""
        if nested:
            yield f"{pad}{key}:{behind}"
            yield from _mapping(value, depth + 1)
        elif _is_block(value):
            yield f"{pad}{key}:{behind}"
            for item in value:
                yield from _item(item, depth + 1)
        else:
            yield f"{pad}{key}: {_scalar(value)}{behind}"


def _item(item: Any, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(item, dict):
        lines = list(_mapping(item, depth + 1))
        yield f"{pad}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        value, note = item if isinstance(item, Noted) else (item, "")
        yield f"{pad}- {_scalar(value)}{f'  # {note}' if note else ''}"


def _is_block(value: Any) -> bool:
    return isinstance(value, list) and not all(isinstance(item, int) for item in value)


def _scalar(value: Any) -> str:
    """Numbers that must keep their notation, such as 3e-4, are given as text; no text here needs quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Inline):
        return "{" + ", ".join(f"{key}: {_scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return str(value)
