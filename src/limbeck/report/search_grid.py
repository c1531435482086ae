"""Plain grids of a search: headings and cells, for the terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

NOTHING = "–"


@dataclass(frozen=True)
class SearchGrid:
    """A table of text cells.

    Args:
        headings: One a column.
        rows: As many cells each.
        words: Headings of columns that hold words; the others hold numbers and are aligned to the right.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str]

    def table(self) -> Table:
        """Return it for the terminal."""
        table = Table(box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=True)
        for heading in self.headings:
            table.add_column(heading, justify="left" if heading in self.words else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """Return it in Markdown."""
        rule = "|".join("---" if heading in self.words else "---:" for heading in self.headings)
        rows = [" | ".join(cell.replace("|", r"\|") for cell in row) for row in (self.headings, *self.rows)]
        return "\n".join([f"| {rows[0]} |", f"|{rule}|", *(f"| {row} |" for row in rows[1:])])


def write_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV with unrounded numbers; what is unknown is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def shown(value: float | None, digits: int) -> str:
    """Write a number with so many decimals, and nothing as a dash."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def duration(seconds: float) -> str:
    """Write a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
