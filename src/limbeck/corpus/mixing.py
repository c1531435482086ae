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
    bounds = np.floor(total * np.cumsum(shares) + offset).astype(np.int64)
    bounds[-1] = total
    return np.diff(np.minimum(bounds, total), prepend=0).tolist()


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
        before = np.sum([self.counts(earlier) for earlier in range(epoch)] or [[0] * len(self.rows)], axis=0)
        parts = [
            self._starts[source] + self._sequence(source, int(before[source]), count)
            for source, count in enumerate(self.counts(epoch))
        ]
        return np.concatenate(parts)

    def sources(self, rows: NDArray[np.int64]) -> list[int]:
        """Return how many of some rows are of each source."""
        found = np.searchsorted(self._starts, rows, side="right") - 1
        return np.bincount(found, minlength=len(self.rows)).tolist()

    def _sequence(self, source: int, start: int, count: int) -> NDArray[np.int64]:
        """Return part of the endless sequence of random orders of a source's rows."""
        size = self.rows[source]
        if count == 0:
            return np.empty(0, np.int64)
        passes = range(start // size, -(-(start + count) // size))
        orders = [np.random.default_rng([self.seed, source, number]).permutation(size) for number in passes]
        return np.concatenate(orders)[start % size :][:count]
