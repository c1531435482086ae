"""Results as blocks: paragraphs, notes, facts, steps, tables, figures and code, before they are rendered.

A record becomes a list of blocks once, and each form of output renders blocks once: `console` here, Markdown in
`limbeck.core.markdown`, HTML in the template of `limbeck.report`, and `to_csv` for unrounded numbers.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Protocol, TypeAlias, TypeVar

from limbeck.core.escaping import escape_csv_rows

T = TypeVar("T")

NOTHING = "–"
"""Stands where there is no value."""
_MOST_EXACT = 1e9
"""Below this, ten decimals of a number can be rounded exactly."""


@dataclass(frozen=True)
class Cell:
    """A value of a table, with the way it is written.

    Args:
        value: The value, unrounded; None where there is none.
        form: The format by which it is shown, for `str.format`, such as `{:.1f} %`.
        mark: Its style on a console, as rich has it; `bold` and `italic` also hold in Markdown files.
        detail: What stands behind the value in brackets, and on a page below it in small print; empty for nothing.
    """

    value: str | float | None
    form: str = "{}"
    mark: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.main} ({self.detail})" if self.detail else self.main

    @property
    def main(self) -> str:
        """The value as it is written, without its detail."""
        return NOTHING if self.value is None else self.form.format(self.value)


AnyCell: TypeAlias = str | Cell
"""A cell of a table: a text, or a value with the way it is written."""


def number(value: float | None, digits: int = 0) -> Cell:
    """Return a cell of a number with so many decimals."""
    return Cell(value, f"{{:,.{digits}f}}")


def counted(count: float, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one: `1 cell`, `1,200 cells`, `2 queries`."""
    if count != 1:
        noun = plural(noun)
    return f"{count:,.0f} {noun}"


def plural(noun: str) -> str:
    """Return a noun in the plural: `cells`, `queries`, `batches`."""
    if noun.endswith("ry"):
        return f"{noun[:-1]}ies"
    if noun.endswith("ch"):
        return f"{noun}es"
    return f"{noun}s"


def counted_rows(rows: float, queries: float | None = None, noun: str = "row") -> str:
    """Return a number of labelled rows in words: `1,200 rows`, or `40 queries (240 pairs)` of a ranking.

    Args:
        rows: The number of rows; those of a ranking are pairs of a query and a document.
        queries: The number of queries of a ranking; None for other rows, and in older records.
        noun: The name of a row that is no pair, such as `development row`.
    """
    if queries is None:
        return counted(rows, noun)
    # Of the name, the words before the last one stay: `40 development queries`.
    *adjectives, _ = noun.split()
    name_of_query = " ".join([*adjectives, "query"])
    return f"{counted(queries, name_of_query)} ({counted(rows, 'pair')})"


def slug(*words: object) -> str:
    """Return a name fit for files and anchors: lower-case letters, digits and hyphens."""
    text = " ".join(map(str, words)).lower()
    name = re.sub(r"[^a-z0-9]+", "-", text).strip("-")
    return name[:60] or "figure"


# A word and the marks or spaces behind it: `limbeck/`, `core/`, `blocks.`, `py`.
_PIECES = re.compile(r"[^\s/_,.|=:-]*[\s/_,.|=:-]*")


def wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Break a text into lines that fit: behind spaces, and behind the marks that join words in names and paths.

    Args:
        text: A line. Further lines have the same indent.
        fits: Returns whether a line fits. A piece between two marks that does not fit gets a line of its own.
    """
    indent = text[: len(text) - len(text.lstrip())]
    lines = [""]
    for piece in _PIECES.findall(text):
        if lines[-1].strip() and not fits((lines[-1] + piece).rstrip()):
            lines.append(indent)
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def rounded(score: float, digits: int) -> str:
    """Write a score with so many decimals, halves away from zero.

    Of two forms of one score, 75.75 and 0.7575, the nearest binary numbers may lie on different sides of the half, so
    that formats would print 75.8 beside 0.757.
    """
    # A damaged record may hold any number.
    if not abs(score) < _MOST_EXACT:
        return f"{score:.{digits}f}"
    # Ten decimals undo the error of a multiplication by 100.
    decimal = Decimal(f"{score:.10f}")
    return str(decimal.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


class Mean(Protocol):
    """A figure over runs: its mean, and its deviation if there are several."""

    mean: int | float
    deviation: int | float | None


def mean(figure: Mean | None, digits: int = 1) -> Cell:
    """Return a cell of a mean with its deviation, where there is one."""
    if figure is None:
        return Cell(None)
    form = rounded(figure.mean, digits)
    if figure.deviation is not None:
        form += f" ± {figure.deviation:.{digits}f}"
    return Cell(figure.mean, form)


def interval(ends: tuple[float, float] | None, digits: int = 1) -> Cell:
    """Return a cell of the two ends of an interval."""
    if ends is None:
        return Cell(None)
    low, high = ends
    return Cell(f"{low:.{digits}f} to {high:.{digits}f}")


def duration(seconds: float, *, longest: float | None = None) -> str:
    """Write a time in seconds, minutes or hours.

    Args:
        seconds: The time.
        longest: The longest time of a column, whose unit all times of the column have. Where its unit is not seconds, a
            time below 10 has a decimal. A time of which that unit would show 0.0 has its own unit.
    """
    deciding = seconds if longest is None else longest
    if deciding < 120:
        return f"{seconds:.0f} s"
    if deciding < 7200:
        minutes = seconds / 60
        digits = 0
        if longest is not None and minutes < 10:
            digits = 1
        text = f"{minutes:.{digits}f} min"
    else:
        text = f"{seconds / 3600:.1f} h"
    if seconds > 0 and text.startswith("0.0 "):
        return duration(seconds)
    return text


def duration_to_the_second(seconds: float) -> str:
    """Write a time with its seconds, so that one that goes on always changes: `64 s`, `3 min 10 s`, `2 h 0 min 5 s`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    whole_minutes, rest_seconds = divmod(round(seconds), 60)
    if whole_minutes < 120:
        return f"{whole_minutes} min {rest_seconds} s"
    whole_hours, rest_minutes = divmod(whole_minutes, 60)
    return f"{whole_hours} h {rest_minutes} min {rest_seconds} s"


@dataclass(frozen=True)
class Paragraph:
    """Running text, with the address of its source if it has one."""

    text: str
    address: str = ""


@dataclass(frozen=True)
class Notes:
    """Lines that belong together; warnings among them are set apart."""

    lines: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True)
class Facts:
    """Names and their values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Layout:
    """The form of a table on a console.

    Args:
        boxed: Draw lines around all cells, instead of a rule below the headings.
        fold: Break long cells, instead of shortening them.
        collapsed: Let neighbouring columns share the padding between them.
        padding: Spaces beside each cell.
        whole_from: Columns from this index on are as wide as their widest cell; None for none.
        no_wrap: Keep cells on one line, except for those of the first column.
        label_width: Least width of the first column.
        cut: Cut the table into parts, each with the columns that fit on the console and the first column again. That
            column is then as wide as its longest cell, up to two fifths of the console, and broken between words.
        narrowest: Least width of the other columns of a part.
        apart: Put published rows behind a rule, and leave those out of a part that have no figure in its columns.
    """

    boxed: bool = False
    fold: bool = True
    collapsed: bool = True
    padding: int = 1
    whole_from: int | None = None
    no_wrap: bool = False
    label_width: int = 0
    cut: bool = False
    narrowest: int = 0
    apart: bool = False


BOXED = Layout(boxed=True, fold=False, collapsed=False)


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        caption: Its title.
        headings: The heading of each column. A second line in it is the unit, which `heading` puts into brackets.
        rows: The rows, with a cell for each column; the first cell names the row.
        words: Indices of columns of words, see `with_words`; all other columns hold figures and are aligned to the
            right.
        strong: Indices of rows that are highlighted.
        faint: Indices of rows that are dimmed on a console.
        published: Indices of rows of figures that papers printed.
        left_out: Number of rows that are not shown.
        folded: Whether it is closed until a reader opens it.
        links: The anchor on the page that the name of each row leads to; empty for no links.
        of_texts: Whether a row is named by a text of some sentences. On a narrow page this text stands above the other
            cells of its row.
        layout: Its form on a console.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[AnyCell, ...], ...]
    words: tuple[int, ...] = ()
    strong: tuple[int, ...] = ()
    faint: tuple[int, ...] = ()
    published: tuple[int, ...] = ()
    left_out: int = 0
    folded: bool = False
    links: tuple[str, ...] = ()
    of_texts: bool = False
    layout: Layout = Layout()

    def with_words(self, *headings: str) -> "Table":
        """Return the same table with columns of words, by their headings."""
        return replace(self, words=tuple(self.headings.index(heading) for heading in headings))

    def heading(self, index: int) -> str:
        """Return a heading on one line."""
        title, _, unit = self.headings[index].partition("\n")
        return f"{title} ({unit})" if unit else title


class Drawing(Protocol):
    """A picture that draws itself with matplotlib, which is imported when it does."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""

    def draw(self, sheet: Any) -> None:
        """Draw on a figure of matplotlib, or on a part of one."""


@dataclass(frozen=True)
class Figure:
    """A figure, its description, and the numbers behind it.

    Args:
        name: The stem of its file, unique in a page.
        title: A line.
        caption: How to read it; empty where the title says it.
        description: Its content in numbers.
        drawing: The picture; `limbeck.report.plots` has its kinds.
        data: The numbers; None where a file has them.
    """

    name: str
    title: str
    caption: str
    description: str
    drawing: Drawing
    data: Table | None = None


@dataclass(frozen=True)
class Code:
    """Text to copy, closed until a reader opens it."""

    title: str
    text: str
    language: str


Block: TypeAlias = Paragraph | Notes | Facts | Table | Figure | Code


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    title: str
    blocks: tuple[Block, ...]


DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, OverflowError, StopIteration)
"""Errors of code that trusts a record, where the record lacks a field or has another type there."""


def build_sections(subject: T, builders: Mapping[str, Callable[[T], Iterable[Block]]]) -> list[Section]:
    """Build the sections of a record that may be damaged.

    Args:
        subject: The record, or what was read of its folder.
        builders: The functions that make the blocks of each section, by its title.

    Returns:
        The sections. Where a damaged record makes a block impossible, a warning replaces the rest of the section. Empty
            notes and sections are left out.
    """
    sections = []
    for title, build in builders.items():
        blocks = tuple(_build_blocks(title, build, subject))
        if blocks:
            sections.append(Section(title, blocks))
    return sections


def _build_blocks(title: str, build: Callable[[T], Iterable[Block]], subject: T) -> Iterator[Block]:
    """Yield the blocks of a section; if the record turns out to be damaged, a warning takes the place of the rest."""
    try:
        for block in build(subject):
            is_empty = isinstance(block, Notes) and not block.lines
            if not is_empty:
                yield block
    except DAMAGED as error:
        message = " ".join(str(error).split())[:120]
        reason = f"{type(error).__name__}: {message}"
        yield Notes((f"{title}: the record is incomplete or damaged ({reason}).",), warning=True)


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV with unrounded numbers; values that are unknown are empty, and other keys left out."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writerows(escape_csv_rows(columns, rows))
    return buffer.getvalue()
