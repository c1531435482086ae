"""Batches of row numbers, dealt out to the processes of a training.

A *lane* is one of the processes that read the same rows side by side: its index, and the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from torch.utils.data import Sampler

from limbeck.corpus import Lane


class SharedBatches(Sampler[list[int]]):
    """Cuts the rows of a sampler into batches of all processes, and yields the part of one of them.

    Rows are dealt to the processes one by one, so that all have rows of like length. The last batch of an epoch may
    have fewer rows than there are processes. A process without a row then gets an empty batch, which
    `limbeck.training.loader` fills with a row that counts nothing. No row is trained on twice in an epoch, as it would
    be if the last batch were filled up from the epoch's beginning.

    Args:
        rows: Yields the rows of an epoch.
        batch_size: Rows of a batch of one process.
        lane: This process.
        drop_last: Leave out the last batch unless it is full.
        multiple: Add empty batches until their number is a multiple of this.

    Attributes:
        skip: Batches to leave out at the beginning of an epoch, which an earlier process trained on.
    """

    def __init__(self, rows: Sampler[int], batch_size: int, lane: Lane, *, drop_last: bool, multiple: int = 1) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.skip = 0
        self._lane = lane
        self._multiple = multiple

    @property
    def _rows_of_all_processes(self) -> int:
        """Rows of a batch of all processes together."""
        return self.batch_size * self._lane.count

    def __len__(self) -> int:
        row_count: int = len(self.rows)  # type: ignore[arg-type]
        batches, rest = divmod(row_count, self._rows_of_all_processes)
        if rest and not self.drop_last:
            batches += 1
        return batches + _missing_to_multiple(batches, self._multiple)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self._batches_of_epoch(), self.skip, None)

    def _batches_of_epoch(self) -> Iterator[list[int]]:
        """Yield this process' batches of an epoch, none skipped."""
        batches = 0
        for batch in _cut_into_batches(self.rows, self._rows_of_all_processes):
            is_full = len(batch) == self._rows_of_all_processes
            if is_full or not self.drop_last:
                batches += 1
                # Of n processes each takes every n-th row, beginning with its own index.
                yield batch[self._lane.index :: self._lane.count]
        # Empty batches fill up the last step.
        for _ in range(_missing_to_multiple(batches, self._multiple)):
            yield []


def dealt_batches(rows: int, batch_size: int, lane: Lane) -> list[list[int]]:
    """Deal whole batches out to the processes, one by one.

    Held-out rows are measured in such batches. They are those of a single process, so that a term that couples the rows
    of a batch has the same value with any number of processes.

    Args:
        rows: Number of rows.
        batch_size: Rows of a batch.
        lane: This process.

    Returns:
        The batches of this process.
    """
    batches = list(_cut_into_batches(range(rows), batch_size))
    # Every process gets as many batches, the last of which may be empty.
    batches += [[]] * _missing_to_multiple(len(batches), lane.count)
    return batches[lane.index :: lane.count]


def _missing_to_multiple(count: int, multiple: int) -> int:
    """Return how much has to be added to a count to make it a multiple of a number."""
    return -count % multiple


def _cut_into_batches(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Cut rows into lists of a size; the last one may be shorter."""
    iterator = iter(rows)
    while True:
        batch = list(islice(iterator, size))
        if not batch:
            return
        yield batch
