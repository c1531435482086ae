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
from limbeck.option_names import for_caller


def console(*blocks: Block) -> RenderableType:
    """Return blocks for a console; their lines name options as the caller knows them."""
    return Group(*_console_lines(blocks))


def _console_lines(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    """Yield the lines and tables of blocks; figures and code are only named by their title."""
    for block in blocks:
        match block:
            case Paragraph():
                yield Text(for_caller(block.text).replace("**", ""), style="bold")
            case Notes():
                style = "yellow" if block.warning else "dim"
                for line in block.lines:
                    yield Text(for_caller(line), style=style)
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
    """A table that learns the width of the console only as it is printed, when rich calls `__rich_console__`."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._table.layout.cut:
            all_columns = range(len(self._table.headings))
            yield self._draw(all_columns)
            return
        label_width = self._label_width(options.max_width)
        for part in self._cut_into_parts(options.max_width - label_width - _GAP):
            yield self._draw((0, *part), label_width)

    def _label_width(self, console_width: int) -> int:
        """The width of the first column in each part of a table that is cut."""
        most = _LABEL_SHARE * console_width // 100
        return max(self._table.layout.label_width, min(self._width(0), most))

    def _cut_into_parts(self, room: int) -> Iterator[range]:
        """Group the columns behind the first, in their order, so that each group fits into `room` characters.

        A column that is too wide by itself is a group of its own.
        """
        count = len(self._table.headings)
        start = 1
        used = 0
        for index in range(1, count):
            width = self._width(index) + _GAP
            if index > start and used + width > room:
                yield range(start, index)
                start = index
                used = 0
            used += width
        yield range(start, count)

    def _width(self, index: int) -> int:
        """The characters of the widest line of a column, or the least width of the layout."""
        lines = self._table.headings[index].split("\n")
        lines += [str(row[index]) for row in self._table.rows]
        widest = max(len(line) for line in lines)
        return max(self._table.layout.narrowest, widest)

    def _draw(self, columns: Sequence[int], label_width: int | None = None) -> RichTable:
        """Make rich's table of some of the columns.

        Args:
            columns: Indices of the columns, the first column at the beginning.
            label_width: Width of the first column, whose texts are broken between words; None leaves them whole.
        """
        drawn = self._draw_headings(columns, label_width)
        # Among rows of the table's own figures stand rows of published figures, which a rule sets apart.
        is_after_own_row = False
        for index, row in enumerate(self._table.rows):
            cells = [row[column] for column in columns]
            is_published = index in self._table.published
            if is_published and self._table.layout.apart:
                has_figures = any(str(cell) != NOTHING for cell in cells[1:])
                if not has_figures:
                    continue
                if is_after_own_row:
                    drawn.add_section()
            label, *figures = (_text_of(cell) for cell in cells)
            if label_width is not None:
                label = _break_label(label, label_width)
            drawn.add_row(label, *figures, style=self._style(index))
            is_after_own_row = not is_published
        return drawn

    def _style(self, index: int) -> str:
        """The style of a row."""
        if index in self._table.published:
            return "cyan"
        if index in self._table.strong:
            return "bold"
        if index in self._table.faint:
            return "dim"
        return ""

    def _draw_headings(self, columns: Sequence[int], label_width: int | None) -> RichTable:
        """Make rich's table with its headings and without rows."""
        table = self._table
        layout = table.layout
        if layout.boxed:
            drawn = RichTable(title=table.caption or None, title_justify="left", expand=False)
        else:
            drawn = RichTable(
                box=box.SIMPLE_HEAVY, pad_edge=False, collapse_padding=layout.collapsed, padding=(0, layout.padding)
            )
        for index in columns:
            if not layout.cut:
                column_options = self._options_of_column(index)
            elif index == 0:
                column_options = {"overflow": "fold", "width": label_width}
            else:
                column_options = {"justify": self._justify(index), "min_width": layout.narrowest}
            drawn.add_column(table.headings[index], **column_options)
        return drawn

    def _options_of_column(self, index: int) -> dict[str, Any]:
        """Rich's options of a column in a table that is not cut."""
        layout = self._table.layout
        least_width: int | None = None
        if index == 0 and layout.label_width:
            least_width = layout.label_width
        # A column from `whole_from` on is as wide as its widest cell.
        if layout.whole_from is not None and index >= layout.whole_from:
            least_width = max((len(str(row[index])) for row in self._table.rows), default=None)
        return {
            "justify": self._justify(index),
            "overflow": "fold" if layout.fold else "ellipsis",
            "min_width": least_width,
            "no_wrap": layout.no_wrap and index > 0,
        }

    def _justify(self, index: int) -> str:
        return "left" if index in self._table.words else "right"


def _break_label(label: Text, width: int) -> Text:
    lines = wrapped(label.plain, lambda line: len(line) <= width)
    return Text("\n".join(lines), style=label.style)


def _text_of(cell: AnyCell) -> Text:
    style = cell.mark if isinstance(cell, Cell) else ""
    return Text(str(cell), style=style)
