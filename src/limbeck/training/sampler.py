"""`LengthGroupedSampler`: rows of a batch have nearly the same length, in an order that a resumed run repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from limbeck import corpus as texts
from limbeck.corpus import RowMix
from limbeck.corpus.batches.length_groups import group_by_length


class LengthGroupedSampler(Sampler[int]):
    """Yields the indices of rows, batch by batch of similar length, in random order.

    An epoch has every row once, or the rows that a *mix* draws from several sources.

    Unlike in `transformers.trainer_pt_utils.LengthGroupedSampler` the order is a function of seed and epoch alone, so a
    run that is resumed in its second epoch reads the rows that it would have read.

    Args:
        lengths: Length of every row in tokens.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
        mix: Draws the rows of an epoch; None for every row once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int, mix: RowMix | None = None) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size = batch_size
        self._seed = seed
        self._mix = mix
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        for batch in self._batches(self._epoch):
            yield from batch.tolist()

    def drawn(self, rows: Sequence[int]) -> list[int]:
        """Count the rows of each source of the mix that were trained on.

        Args:
            rows: For each epoch the number of its rows that were trained on; they are its first ones.
        """
        assert self._mix is not None
        counts_of_epochs = []
        for epoch, count in enumerate(rows):
            if count == len(self):
                counts_of_epochs.append(self._mix.counts(epoch))
                continue
            # In an epoch that has not ended, the first rows of its order were read. The empty array lets an epoch
            # without batches be joined too.
            order = np.concatenate([*self._batches(epoch), np.empty(0, np.int64)])
            counts_of_epochs.append(self._mix.sources(order[:count]))
        counts: list[int] = np.sum(counts_of_epochs, axis=0).tolist()
        return counts

    def relative_length(self, first: int, last: int) -> float:
        """Return the mean length of some rows by that of all rows; 1 for no rows.

        Batches have rows of similar length, so a few of them may be far longer than the others. Rows behind the first
        epoch count as rows of mean length.

        Args:
            first: The place of the first row in the order of the epochs, from 0.
            last: The place behind the last row.
        """
        if first >= last:
            return 1.0
        row_count = len(self._tokens_before) - 1
        mean_length = self._tokens_before[-1] / row_count
        # The tokens before the first of the rows, and before the place behind the last one.
        tokens_before = []
        for place in (first, last):
            rows_behind_epoch = max(0, place - row_count)
            tokens = self._tokens_before[place - rows_behind_epoch] + rows_behind_epoch * mean_length
            tokens_before.append(tokens)
        tokens_of_rows = tokens_before[1] - tokens_before[0]
        return float(tokens_of_rows / (last - first) / mean_length)

    @cached_property
    def _tokens_before(self) -> NDArray[np.int64]:
        """The number of tokens before each row of the first epoch, and of all of its rows, `[rows + 1]`."""
        order = np.concatenate([*self._batches(0), np.empty(0, np.int64)])
        return np.concatenate([[0], np.cumsum(self._lengths[order])])

    def _batches(self, epoch: int) -> list[NDArray[Any]]:
        """Return the rows of an epoch, batch by batch."""
        generator = np.random.default_rng([self._seed, epoch])
        if self._mix is None:
            order = generator.permutation(len(self._lengths))
        else:
            order = generator.permutation(self._mix.draw(epoch))
        return group_by_length(order, self._lengths, self._batch_size, generator)


def grouped_padding_share(lengths: Sequence[int] | texts.GroupedRows, batch_size: int) -> float:
    """Return the share of positions that are padding when batches are drawn by `LengthGroupedSampler`; 0 to 1.

    Args:
        lengths: Length of every row in tokens, or rows of which several are read together.
        batch_size: Rows of a batch.
    """
    if isinstance(lengths, texts.GroupedRows):
        order = list(LengthGroupedSampler(lengths["length"], batch_size, seed=0))
        return lengths.padding_share(order, batch_size)
    sampler = LengthGroupedSampler(lengths, batch_size, seed=0)
    return texts.padding_share([lengths[index] for index in sampler], batch_size)
