"""Sampling blocks so that those of a batch have nearly the same length, in an order that a resumed run repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from torch.utils.data import Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.corpus import padding_share

_BATCHES_SORTED_TOGETHER = 50


class LengthGroupedSampler(Sampler[int]):
    """Yields every index once an epoch, batch by batch of similar length, batches in random order.

    Unlike `transformers.trainer_pt_utils.LengthGroupedSampler` the order is a function of seed and epoch alone, so a
    run resumed in its second epoch meets the rows that it would have met.

    Args:
        lengths: Length of every row in tokens.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([self._seed, self._epoch])
        order = generator.permutation(len(self._lengths))
        group = self._batch_size * _BATCHES_SORTED_TOGETHER
        batches: list[np.ndarray] = []
        for start in range(0, len(order), group):
            part = order[start : start + group]
            part = part[np.argsort(-self._lengths[part], kind="stable")]
            batches.extend(np.split(part, range(self._batch_size, len(part), self._batch_size)))
        # A last batch that is not full stays last: in the middle it would shift the bounds of all others.
        full = [batch for batch in batches if len(batch) == self._batch_size]
        rest = [batch for batch in batches if len(batch) < self._batch_size]
        for index in generator.permutation(len(full)):
            yield from full[index].tolist()
        for batch in rest:
            yield from batch.tolist()


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
