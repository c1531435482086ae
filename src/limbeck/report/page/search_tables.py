"""The grids of searches as tables of the page."""

from __future__ import annotations

from limbeck.report.page.content import Table
from limbeck.report.search_grid import SearchGrid

MOST_SHAPES = 100


def search_table(caption: str, grid: SearchGrid, left_out: int = 0, strong: tuple[int, ...] = ()) -> Table:
    """Make a table of a grid.

    Args:
        caption: What it shows.
        grid: Its cells.
        left_out: How many rows the grid lacks; none if it is less than that.
        strong: Rows that stand out, by number.
    """
    words = tuple(index for index, heading in enumerate(grid.headings) if heading in grid.words)
    rows = tuple(tuple(row) for row in grid.rows)
    return Table(caption, tuple(grid.headings), rows, words, strong=strong, left_out=max(0, left_out))
