"""`PaddedLayout`: the places of rows of unequal length in a table, with padding in the places that are left."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PaddedLayout:
    """The places of the values of B rows in a table of L columns.

    Args:
        lengths: Number of values of each row, `[B]`.
        width: Number of columns, L, at least the longest row.
        side: Side of the padding, `"right"` or `"left"`.
    """

    lengths: NDArray[np.int64]
    width: int
    side: str

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Column of the first value of each row, `[B]`."""
        if self.side == "right":
            return np.zeros_like(self.lengths)
        return self.width - self.lengths

    @cached_property
    def is_filled(self) -> NDArray[np.bool_]:
        """Whether a place has a value, and no padding, `[B, L]`."""
        columns = np.arange(self.width)[None, :]
        starts = self.starts[:, None]
        ends = starts + self.lengths[:, None]
        return (starts <= columns) & (columns < ends)

    def fill(self, rows: Sequence[NDArray[np.int64]], filler: int) -> NDArray[np.int64]:
        """Return the table of some rows, int64 `[B, L]`.

        Args:
            rows: The values of each row.
            filler: Value of the padding.
        """
        table = np.full((len(rows), self.width), filler, dtype=np.int64)
        table[self.is_filled] = np.concatenate(rows)
        return table


def lay_out(rows: Sequence[Sequence[Any] | NDArray[Any]], side: str, multiple_of: int = 1) -> PaddedLayout:
    """Return the layout of rows, as wide as the longest, rounded up.

    Args:
        rows: The rows.
        side: Side of the padding, `"right"` or `"left"`.
        multiple_of: Round the width up to a multiple of this.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    width = math.ceil(int(lengths.max()) / multiple_of) * multiple_of
    return PaddedLayout(lengths, width, side)
