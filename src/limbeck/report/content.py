"""What a report says, before it is rendered: sections of paragraphs, notes, tables, figures and code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from limbeck.report.marks import Drawing

NOTHING = "–"


@dataclass(frozen=True)
class Paragraph:
    """Running text, with an address it is from where there is one."""

    kind: ClassVar[str] = "paragraph"
    text: str
    address: str = ""


@dataclass(frozen=True)
class Notes:
    """Lines that belong together; as warnings they are what a reader must not miss."""

    kind: ClassVar[str] = "notes"
    lines: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True)
class Facts:
    """Names and what they are."""

    kind: ClassVar[str] = "facts"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Steps:
    """What was done, in order: a heading and a line or two for each step."""

    kind: ClassVar[str] = "steps"
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table of text cells.

    Args:
        caption: What it shows.
        headings: One a column; the first column names the rows.
        rows: As many cells each.
        words: Columns of words, by number, beside the first; the others hold figures.
        strong: Rows that stand out, by number.
        left_out: How many rows are not shown.
        folded: Closed until it is asked for.
    """

    kind: ClassVar[str] = "table"
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = ()
    strong: tuple[int, ...] = ()
    left_out: int = 0
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure, the words for it, and the numbers behind it.

    Args:
        name: The stem of its file, unique in a page.
        title: A line.
        caption: What a reader should know to read it; empty if the title says it.
        description: What is seen, in numbers.
        drawing: The picture.
        data: The numbers.
    """

    kind: ClassVar[str] = "figure"
    name: str
    title: str
    caption: str
    description: str
    drawing: Drawing
    data: Table


@dataclass(frozen=True)
class Code:
    """Text to copy, closed until it is asked for."""

    kind: ClassVar[str] = "code"
    title: str
    text: str
    language: str


Block: TypeAlias = Paragraph | Notes | Facts | Steps | Table | Figure | Code


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Part:
    """All that is said of one folder.

    Args:
        title: Its name.
        subtitle: What it is, in a line.
        sections: What is said.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Page:
    """A report.

    Args:
        title: Of the whole.
        parts: One for each folder, after one that compares them where there are several.
    """

    title: str
    parts: tuple[Part, ...]

    def figures(self) -> Iterator[Figure]:
        """Go through all figures, in order."""
        for part in self.parts:
            for section in part.sections:
                yield from (block for block in section.blocks if isinstance(block, Figure))

    def warnings(self) -> list[str]:
        """Return all warnings, in order; of several folders each with the name of its own."""
        found = [
            (part.title, line)
            for part in self.parts
            for section in part.sections
            for block in section.blocks
            if isinstance(block, Notes) and block.warning
            for line in block.lines
        ]
        return [f"{title}: {line}" if len(self.parts) > 1 else line for title, line in found]


def slug(*words: object) -> str:
    """Return a name fit for files and anchors: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower()).strip("-")[:60] or "figure"


def name_uniquely(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Number the names of figures that come twice, in order."""
    seen: dict[str, int] = {}

    def renamed(block: Block) -> Block:
        if not isinstance(block, Figure):
            return block
        seen[block.name] = seen.get(block.name, 0) + 1
        return block if seen[block.name] == 1 else replace(block, name=f"{block.name}-{seen[block.name]}")

    return tuple(
        replace(
            part,
            sections=tuple(
                replace(section, blocks=tuple(renamed(block) for block in section.blocks)) for section in part.sections
            ),
        )
        for part in parts
    )


# Sections of damaged records: what can be shown is shown, what cannot is said.


DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ZeroDivisionError,
    OverflowError,
    StopIteration,
)
"""What code that trusts a record raises when the record lacks something, or has something else there."""


def guarded(title: str, build: Callable[[], Iterable[Block]]) -> list[Section]:
    """Build a section of a record that may be damaged.

    Args:
        title: Of the section.
        build: Makes its blocks.

    Returns:
        The section, as far as its blocks could be made, with a warning where they could not; none where there is
        nothing in it.
    """
    blocks: list[Block] = []
    try:
        blocks.extend(build())  # What was made before an error is kept.
    except DAMAGED as error:
        blocks.append(Notes((f"{title}: the record is incomplete or damaged ({_describe(error)}).",), warning=True))
    return [Section(title, tuple(blocks))] if blocks else []


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
