"""Sampling blocks so that those of a batch have nearly the same length, in an order that a resumed run repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.corpus import RowMix, padding_share
from limbeck.corpus.batches import group_by_length


class LengthGroupedSampler(Sampler[int]):
    """Yields every index once an epoch, or those that a mix draws, batch by batch of similar length, in random order.

    Unlike `transformers.trainer_pt_utils.LengthGroupedSampler` the order is a function of seed and epoch alone, so a
    run resumed in its second epoch meets the rows that it would have met.

    Args:
        lengths: Length of every row in tokens.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
        mix: Which rows an epoch has; without it, every row once.
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

    def drawn(self, rows: int) -> list[int]:
        """Return how many of the first rows, over epochs, are of each source of the mix.

        Args:
            rows: How many rows were trained on.
        """
        assert self._mix is not None
        whole, rest = divmod(rows, len(self))
        counts = np.sum([self._mix.counts(epoch) for epoch in range(whole)] or [[0]], axis=0)
        begun = np.concatenate([*self._batches(whole), np.empty(0, np.int64)])[:rest]
        return (counts + np.asarray(self._mix.sources(begun))).tolist()

    def _batches(self, epoch: int) -> list[NDArray[Any]]:
        generator = np.random.default_rng([self._seed, epoch])
        if self._mix is None:
            order = generator.permutation(len(self._lengths))
        else:
            order = generator.permutation(self._mix.draw(epoch))
        return group_by_length(order, self._lengths, self._batch_size, generator)


def make_sampler(dataset: Any, batch_size: int, seed: int) -> LengthGroupedSampler:
    """Make the sampler of some rows, which may be mixed.

    Args:
        dataset: Rows with the column `length`; those of `limbeck.training.rows.MixedRows` know their mix.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
    """
    return LengthGroupedSampler(dataset["length"][:], batch_size, seed, getattr(dataset, "mix", None))


class HasEpochs(Protocol):
    """Changes its order or its content from epoch to epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        ...


class EpochSetter(TrainerCallback):
    """Tells the sampler, and rows that are masked anew every epoch, which epoch begins.

    The loop itself does not reach a sampler that is sharded over ranks.

    Args:
        parts: Whatever has `set_epoch`.
    """

    def __init__(self, *parts: HasEpochs) -> None:
        self._parts = parts

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set the epoch; a run resumed in the middle of one has a fraction here."""
        for part in self._parts:
            part.set_epoch(int((state.epoch or 0.0) + 1e-6))


def grouped_padding_share(lengths: Sequence[int], batch_size: int, seed: int = 0) -> float:
    """Share of positions that are padding when batches are drawn by `LengthGroupedSampler`; 0 to 1."""
    return padding_share([lengths[index] for index in LengthGroupedSampler(lengths, batch_size, seed)], batch_size)
