"""Blocks on a console: text and tables.

A table that is wider than the console is cut into *parts*: each has some of the columns, and the first column again.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from limbeck.core.blocks import (
    NOTHING,
    AnyCell,
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    Notes,
    Paragraph,
    Table,
    counted,
    wrapped,
)


def console(*blocks: Block) -> RenderableType:
    """Return blocks for a console."""
    return Group(*_console_lines(blocks))


def _console_lines(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    """Yield the lines and tables of blocks; of figures and code the title alone."""
    for block in blocks:
        match block:
            case Paragraph():
                yield Text(block.text.replace("**", ""), style="bold")
            case Notes():
                style = "yellow" if block.warning else "dim"
                for line in block.lines:
                    yield Text(line, style=style)
            case Facts(pairs):
                for name, value in pairs:
                    yield Text(f"{name}: {value}")
            case Table():
                if block.caption and not block.layout.boxed:
                    yield Text(block.caption, style="bold")
                yield _ConsoleTable(block)
                if block.left_out:
                    yield Text(f"{counted(block.left_out, 'more row')} not shown.", style="dim")
            case Figure() | Code():
                yield Text(block.title)


_LABEL_SHARE = 40
"""Largest share of the console's width, in percent, that the first column may take."""

_GAP = 2
"""Characters between two columns of a table."""


class _ConsoleTable:
    """A table, in as many parts as the width of the console needs; rich calls `__rich_console__`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._widths = [self._width(index) for index in range(len(table.headings))]

    def _width(self, index: int) -> int:
        """The characters of the widest line of a column, or the least width of the layout."""
        lines = self._table.headings[index].split("\n")
        lines += [str(row[index]) for row in self._table.rows]
        widest = max(len(line) for line in lines)
        return max(self._table.layout.narrowest, widest)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        layout = self._table.layout
        count = len(self._table.headings)
        if not layout.cut:
            yield self._block(range(count))
            return

        # Each part has the first column and as many of the others, in their order, as fit beside it.
        most_of_label = _LABEL_SHARE * options.max_width // 100
        label = max(layout.cut, min(self._widths[0], most_of_label))
        room = options.max_width - label - _GAP
        start = 1
        while start < count:
            end = start + 1
            used = self._widths[start] + _GAP
            while end < count and used + self._widths[end] + _GAP <= room:
                used += self._widths[end] + _GAP
                end += 1
            yield self._block((0, *range(start, end)), label_width=label)
            start = end

    def _block(self, columns: Sequence[int], label_width: int = 0) -> RichTable:
        """Return a table of rich with some of the columns.

        Args:
            columns: Indices of the columns, the first column at the beginning.
            label_width: Width of the first column, whose texts are broken between words; 0 leaves them whole.
        """
        drawn = self._empty(columns, label_width)
        follows_published = True
        for index, row in enumerate(self._table.rows):
            cells = [row[column] for column in columns]
            is_published = index in self._table.published
            # Published rows stand behind a rule. Those without a figure in these columns are left out.
            if is_published and self._table.layout.apart:
                has_figures = any(str(cell) != NOTHING for cell in cells[1:])
                if not has_figures:
                    continue
                if not follows_published:
                    drawn.add_section()
            first, *others = (_text_of(cell) for cell in cells)
            if label_width:
                lines = wrapped(first.plain, lambda line: len(line) <= label_width)
                first = Text("\n".join(lines), style=first.style)
            drawn.add_row(first, *others, style=self._style(index))
            follows_published = is_published
        return drawn

    def _style(self, index: int) -> str:
        """Return the style of a row."""
        if index in self._table.published:
            return "cyan"
        if index in self._table.strong:
            return "bold"
        return "dim" if index in self._table.faint else ""

    def _empty(self, columns: Sequence[int], label_width: int) -> RichTable:
        """Make a table with its headings alone."""
        table = self._table
        layout = table.layout
        if layout.boxed:
            drawn = RichTable(title=table.caption or None, title_justify="left", expand=False)
        else:
            drawn = RichTable(
                box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=layout.collapsed, padding=(0, layout.padding)
            )
        for index in columns:
            drawn.add_column(table.headings[index], **self._column_options(index, label_width))
        return drawn

    def _column_options(self, index: int, label_width: int) -> dict[str, Any]:
        """Return rich's options of a column."""
        layout = self._table.layout
        if layout.cut and index == 0:
            return {"overflow": "fold", "width": label_width}
        justify = "left" if index in self._table.words else "right"
        if layout.cut:
            return {"justify": justify, "min_width": layout.narrowest}
        # A column from `whole_from` on is as wide as its widest cell.
        least = layout.label_width if index == 0 else None
        if layout.whole_from is not None and index >= layout.whole_from:
            least = max((len(str(row[index])) for row in self._table.rows), default=None)
        return {
            "justify": justify,
            "overflow": "fold" if layout.fold else "ellipsis",
            "min_width": least,
            "no_wrap": layout.no_wrap and index > 0,
        }


def _text_of(cell: AnyCell) -> Text:
    style = cell.mark if isinstance(cell, Cell) else ""
    return Text(str(cell), style=style)
