"""The rows of a mix of sources: the number of rows from each source in an epoch or window, and the choice of rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def draw_counts(total: int, shares: Sequence[float], offset: float) -> list[int]:
    """Return how many of `total` rows come from each source: its share of them, rounded up or down.

    This is systematic sampling: if the offset is drawn uniformly from [0, 1), the expected counts are exactly the
    shares of `total`.

    Args:
        total: Number of rows.
        shares: Share of each source; they add up to 1.
        offset: A number of at least 0 and below 1, which decides the rounding.
    """
    # The rows of source i end at floor(total * (share_1 + … + share_i) + offset).
    ends = np.floor(total * np.cumsum(shares) + offset).astype(np.int64)
    ends = np.minimum(ends, total)
    # Rounding may have left the sum of the shares below 1. Sources behind the last share have no rows.
    last_with_share = np.flatnonzero(shares)[-1]
    ends[last_with_share:] = total
    return np.diff(ends, prepend=0).tolist()


class RowMix:
    """Draws the rows of an epoch of a built corpus from its sources, by their shares.

    An epoch has as many rows as the corpus. The rows of a source are read in a random order, then in another random
    order, and so on over all epochs, so that a row is read again only after all other rows of its source. The draw
    depends on the seed and the epoch alone.

    Args:
        rows: Number of rows of each source, in the order in which the corpus has them.
        shares: Share of each source; a source without rows has the share 0.
        seed: Decides the draw.
    """

    def __init__(self, rows: Sequence[int], shares: Sequence[float], seed: int) -> None:
        self.rows = rows
        self.shares = shares
        self.seed = seed
        # The index of the first row of each source, and at the end the number of all rows.
        self._first_rows = np.cumsum([0, *rows])

    def counts(self, epoch: int) -> list[int]:
        """Return the number of rows of each source in an epoch."""
        total = int(self._first_rows[-1])
        offset = np.random.default_rng([self.seed, epoch]).random()
        return draw_counts(total, self.shares, offset)

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch, source by source."""
        rows_of_earlier_epochs = np.zeros(len(self.rows), np.int64)
        for earlier_epoch in range(epoch):
            rows_of_earlier_epochs += self.counts(earlier_epoch)

        parts = []
        for source, count in enumerate(self.counts(epoch)):
            start = int(rows_of_earlier_epochs[source])
            rows_of_source = self._rows_in_turn(source, start, count)
            parts.append(self._first_rows[source] + rows_of_source)
        return np.concatenate(parts)

    def sources(self, rows: NDArray[np.int64]) -> list[int]:
        """Return how many of some rows, given by their indices, are from each source."""
        source_of_row = np.searchsorted(self._first_rows, rows, side="right") - 1
        return np.bincount(source_of_row, minlength=len(self.rows)).tolist()

    def _rows_in_turn(self, source: int, start: int, count: int) -> NDArray[np.int64]:
        """Return a part of the endless sequence of a source's rows: random orders of all its rows, one after the other.

        Args:
            source: Index of the source.
            start: Place of the first row in the sequence.
            count: Number of rows.
        """
        if count == 0:
            return np.empty(0, np.int64)
        size = self.rows[source]
        # The orders that the part lies in, which are numbered from 0.
        first_order = start // size
        last_order = (start + count - 1) // size
        orders = []
        for number in range(first_order, last_order + 1):
            generator = np.random.default_rng([self.seed, source, number])
            orders.append(generator.permutation(size))
        place_in_first_order = start % size
        return np.concatenate(orders)[place_in_first_order : place_in_first_order + count]
