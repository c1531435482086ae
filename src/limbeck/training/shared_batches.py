"""Batches of rows in memory, dealt out to the processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from torch.utils.data import Sampler

from limbeck.corpus import (
    Lane,
)


class SharedBatches(Sampler[list[int]]):
    """Cuts the rows of a sampler into batches of all processes, and yields the part of one of them.

    Rows are dealt to the processes one by one, so that all have rows of like length. The last batch of an epoch may
    have fewer rows than there are processes: those without one get an empty batch, for which see `_collate_or_fill`. So
    no row is trained on twice, as it would be if the rest were filled up from the epoch's beginning.

    Args:
        rows: Yields the rows of an epoch.
        batch_size: Rows a process.
        lane: Which process, of how many.
        drop_last: Leave out the last batch unless it is full.
        multiple: The batches are as many as a multiple of this; the last ones are empty.

    Attributes:
        skip: Batches to leave out at the beginning of an epoch.
    """

    def __init__(self, rows: Sampler[int], batch_size: int, lane: Lane, *, drop_last: bool, multiple: int = 1) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.skip = 0
        self._lane = lane
        self._multiple = multiple

    def __len__(self) -> int:
        whole, rest = divmod(len(self.rows), self.batch_size * self._lane.count)  # type: ignore[arg-type]
        batches = whole + bool(rest and not self.drop_last)
        return batches + -batches % self._multiple

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self._whole_epoch(), self.skip, None)

    def _whole_epoch(self) -> Iterator[list[int]]:
        size, count = self.batch_size * self._lane.count, 0
        for batch in _cut(self.rows, size):
            if len(batch) == size or not self.drop_last:
                count += 1
                yield batch[self._lane.index :: self._lane.count]
        yield from [[] for _ in range(-count % self._multiple)]


def dealt_batches(rows: int, batch_size: int, lane: Lane) -> list[list[int]]:
    """Deal the batches of one process out to several, one by one; all get equally many, the last ones maybe empty ones.

    For measuring: terms that couple the rows of a batch have the value that one process would give them.

    Args:
        rows: How many there are.
        batch_size: Rows of a batch.
        lane: Which process, of how many.
    """
    batches = list(_cut(range(rows), batch_size))
    batches += [[]] * (-len(batches) % lane.count)
    return batches[lane.index :: lane.count]


def _cut(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Cut rows into lists of a size; the last one may be shorter."""
    iterator = iter(rows)
    while part := list(islice(iterator, size)):
        yield part
