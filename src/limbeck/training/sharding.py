"""Which rows every process reads: together they train on the batches that one process would train on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from torch import Tensor
from torch.utils.data import Sampler

from limbeck.training.units import FILLER

Collate = Callable[[Sequence[Any]], dict[str, Tensor]]


class SharedBatches(Sampler[list[int]]):
    """Cuts the rows of a sampler into batches of all processes, and yields the part of one of them.

    Rows go to the processes in turn, so that all have rows of like length. The last batch of an epoch may have fewer
    rows than there are processes: those without one get an empty batch, for which see `FillingCollator`. So no row is
    trained on twice, as it would be if the rest were filled up from the epoch's beginning.

    Args:
        rows: Yields the rows of an epoch.
        batch_size: Rows a process.
        index: Which process, from 0.
        count: Of so many.
        drop_last: Leave out the last batch unless it is full.
    """

    def __init__(self, rows: Sampler[int], batch_size: int, *, index: int, count: int, drop_last: bool) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._index, self._count = index, count

    def __len__(self) -> int:
        whole, rest = divmod(len(self.rows), self.batch_size * self._count)  # type: ignore[arg-type]
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        size = self.batch_size * self._count
        for batch in _cut(self.rows, size):
            if len(batch) == size or not self.drop_last:
                yield batch[self._index :: self._count]


def dealt_batches(rows: int, batch_size: int, *, index: int, count: int) -> list[list[int]]:
    """Deal the batches of one process out to several, in turn; all get equally many, the last ones maybe empty ones.

    For measuring: terms that couple the rows of a batch have the value that one process would give them.

    Args:
        rows: How many there are.
        batch_size: Rows of a batch.
        index: Which process, from 0.
        count: Of so many.
    """
    batches = list(_cut(range(rows), batch_size))
    batches += [[]] * (-len(batches) % count)
    return batches[index::count]


class FillingCollator:
    """Makes a batch of some row where there is none, marked as one that counts nothing.

    Processes have to take every step together, also one without rows.

    Args:
        collate: Makes batches of rows.
        rows: Where to take the row from.
    """

    def __init__(self, collate: Collate, rows: Any) -> None:
        self._collate = collate
        self._rows = rows

    def __call__(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Make a batch."""
        return self._collate(rows) if rows else {**self._collate([self._rows[0]]), FILLER: True}


def _cut(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Cut rows into lists of a size; the last one may be shorter."""
    iterator = iter(rows)
    while part := list(islice(iterator, size)):
        yield part
