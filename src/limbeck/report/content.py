"""What a report says, before it is rendered: sections of paragraphs, notes, tables, figures and code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from limbeck.core.blocks import (
    DAMAGED,
    NOTHING,
    Block,
    Code,
    Facts,
    Figure,
    Notes,
    Paragraph,
    Section,
    Steps,
    Table,
    guarded,
)

__all__ = [
    "DAMAGED",
    "NOTHING",
    "Block",
    "Code",
    "Facts",
    "Figure",
    "Notes",
    "Page",
    "Paragraph",
    "Part",
    "Section",
    "Steps",
    "Table",
    "guarded",
    "name_uniquely",
    "slug",
]


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
