"""The rows of a mix: how many an epoch or a piece of a stream has of each source, and which."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def draw_counts(total: int, shares: Sequence[float], offset: float) -> list[int]:
    """Return how many of `total` rows come from each source: its share, rounded up or down.

    Systematic sampling: over offsets drawn uniformly from [0, 1) the expected counts are exactly the shares.

    Args:
        total: Number of rows.
        shares: Share of each source; they add up to 1.
        offset: 0 up to, not including, 1.
    """
    ends = np.floor(total * np.cumsum(shares) + offset).astype(np.int64)
    ends = np.minimum(ends, total)
    ends[-1] = total  # Whatever rounding made of the sum of the shares.
    return np.diff(ends, prepend=0).tolist()


@dataclass
class RowMix:
    """The rows of an epoch of a built corpus: as many as the corpus has, drawn from the sources by their shares.

    Every source is gone through in random orders, one after the other and over epochs: a row is read again only
    after all others of its source. The draw depends on the seed and the epoch alone.

    Args:
        rows: Number of rows of each source; they stand in the corpus in this order.
        shares: Share of each source; one without rows has none.
        seed: Decides the draw.
    """

    rows: Sequence[int]
    shares: Sequence[float]
    seed: int

    def __post_init__(self) -> None:
        self._starts = np.cumsum([0, *self.rows])

    def counts(self, epoch: int) -> list[int]:
        """Return the number of rows of each source in an epoch."""
        offset = np.random.default_rng([self.seed, epoch]).random()
        return draw_counts(int(self._starts[-1]), self.shares, offset)

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch, source by source."""
        rows_before = np.zeros(len(self.rows), np.int64)
        for earlier_epoch in range(epoch):
            rows_before += self.counts(earlier_epoch)
        parts = []
        for source, count in enumerate(self.counts(epoch)):
            rows_of_source = self._sequence(source, int(rows_before[source]), count)
            parts.append(self._starts[source] + rows_of_source)
        return np.concatenate(parts)

    def sources(self, rows: NDArray[np.int64]) -> list[int]:
        """Return how many of some rows are of each source."""
        source_of_row = np.searchsorted(self._starts, rows, side="right") - 1
        return np.bincount(source_of_row, minlength=len(self.rows)).tolist()

    def _sequence(self, source: int, start: int, count: int) -> NDArray[np.int64]:
        """Return part of the endless sequence of random orders of a source's rows.

        Args:
            source: Index of the source.
            start: Place of the first row in the sequence.
            count: Number of rows.
        """
        size = self.rows[source]
        if count == 0:
            return np.empty(0, np.int64)
        first_pass = start // size
        last_pass = (start + count - 1) // size
        orders = []
        for number in range(first_pass, last_pass + 1):
            generator = np.random.default_rng([self.seed, source, number])
            orders.append(generator.permutation(size))
        first_row = start % size
        return np.concatenate(orders)[first_row : first_row + count]
