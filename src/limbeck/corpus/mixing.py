"""`Mix`: how large a part each source has in what is read, and which rows that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limbeck.errors import CorpusError


@dataclass(frozen=True)
class Mix:
    """The shares of several sources, by weights or by their sizes to a power.

    With an exponent α the share of a source of size n_i is p_i = n_i^α / Σ_j n_j^α: 1 keeps the proportions, 0 makes
    all equal, and between them small sources, such as rare languages, are read more often than their size says.

    Args:
        weights: A weight for each source, in their order; they need not add up to 1.
        exponent: α, 0 to 1; either this or the weights.

    Raises:
        CorpusError: if both or neither are given, or a value cannot be meant.

    Source:
        XLM (arXiv 1901.07291, section 3.1) has the formula, XLM-R (arXiv 1911.02116, section 3) takes α = 0.3.
    """

    weights: Sequence[float] | None = None
    exponent: float | None = None

    def __post_init__(self) -> None:
        if (self.weights is None) == (self.exponent is None):
            raise CorpusError("A mix has weights or an exponent: give one of the two.")
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(map(float, self.weights)))
            if not all(np.isfinite(weight) and weight > 0 for weight in self.weights):
                raise CorpusError(f"The weights of a mix are {list(self.weights)}: give numbers above 0.")
        elif self.exponent is not None and not 0 <= self.exponent <= 1:
            raise CorpusError(f"The exponent of a mix is {self.exponent}: give a number from 0 to 1, such as 0.3.")

    def shares(self, sizes: Sequence[int | None]) -> list[float]:
        """Return the share of each source; they add up to 1.

        Args:
            sizes: Size of each source in any unit, `None` where it is not known.

        Raises:
            CorpusError: if there are not as many weights as sources, or an exponent meets an unknown size.
        """
        if self.weights is not None:
            if len(self.weights) != len(sizes):
                raise CorpusError(f"The mix has {len(self.weights)} weights for {len(sizes)} sources: give one each.")
            parts = np.asarray(self.weights, dtype=np.float64)
        else:
            known = [size for size in sizes if size is not None]
            if len(known) < len(sizes):
                raise CorpusError(
                    "The size of a source is not known before it is read (a Hub data set), so an exponent cannot be "
                    "applied: give the mix weights."
                )
            parts = np.asarray(known, dtype=np.float64) ** float(self.exponent or 0)
            parts[np.asarray(known) == 0] = 0  # 0^0 is 1, but there is nothing to read.
        if parts.sum() == 0:
            raise CorpusError("All sources of the mix are empty.")
        return [float(part) for part in parts / parts.sum()]


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


class RowMix:
    """Which rows of a built corpus an epoch has: as many as the corpus, drawn from the sources by their shares.

    Every source is gone through in random orders, one after the other and over epochs: a row is read again only
    after all others of its source. What is drawn depends on the seed and the epoch alone.

    Args:
        rows: Number of rows of each source; they stand in the corpus in this order.
        shares: Share of each source; one without rows has none.
        seed: Decides what is drawn.
    """

    def __init__(self, rows: Sequence[int], shares: Sequence[float], seed: int) -> None:
        self._rows = list(rows)
        self._starts = np.cumsum([0, *rows])
        self._shares = list(shares)
        self._seed = seed

    def counts(self, epoch: int) -> list[int]:
        """Return the number of rows of each source in an epoch."""
        offset = np.random.default_rng([self._seed, epoch]).random()
        return draw_counts(int(self._starts[-1]), self._shares, offset)

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch, source by source."""
        before = np.sum([self.counts(earlier) for earlier in range(epoch)] or [[0] * len(self._rows)], axis=0)
        parts = [
            self._starts[source] + self._sequence(source, int(before[source]), count)
            for source, count in enumerate(self.counts(epoch))
        ]
        return np.concatenate(parts)

    def sources(self, rows: NDArray[np.int64]) -> list[int]:
        """Return how many of some rows are of each source."""
        found = np.searchsorted(self._starts, rows, side="right") - 1
        return np.bincount(found, minlength=len(self._rows)).tolist()

    def _sequence(self, source: int, start: int, count: int) -> NDArray[np.int64]:
        """Return part of the endless sequence of random orders of a source's rows."""
        size = self._rows[source]
        if count == 0:
            return np.empty(0, np.int64)
        passes = range(start // size, -(-(start + count) // size))
        orders = [np.random.default_rng([self._seed, source, number]).permutation(size) for number in passes]
        return np.concatenate(orders)[start % size :][:count]
