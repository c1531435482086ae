"""`GroupedRows`: the documents of a query, read together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

QUERY = "query"
"""Column of a ranking corpus: a number for the query of each row."""


class GroupedRows(Dataset[dict[str, Any]]):
    """The rows of a ranking corpus, a query's documents together: as many items as queries.

    A row is a pair of a query and a document, and consecutive rows of the same query are one group. A query with more
    documents than fit becomes several groups, of nearly equal size.

    Args:
        rows: Pairs as token rows, read by number; or some of them changed, as `ReplacedTokens`.
        table: The same rows unchanged, with the column `QUERY`.
        most: Most documents of a group.

    Attributes:
        bounds: Where each group begins, and where the last one ends.
    """

    def __init__(self, rows: Any, table: Any, most: int) -> None:
        self._rows = rows
        queries = np.asarray(table.with_format("numpy")[QUERY][:])
        starts = np.append(0, np.flatnonzero(queries[1:] != queries[:-1]) + 1)[: len(queries)]
        sizes = np.diff([*starts, len(queries)])
        parts = -(-sizes // most)
        # The i-th of p parts of a group begins at i · size / p.
        index = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        begin = np.repeat(starts, parts) + index * np.repeat(sizes, parts) // np.repeat(parts, parts)
        self.bounds = np.append(begin, len(queries))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, key: Any) -> Any:
        """Return a group; by the name of a column, the largest value in each group, as `length` is needed."""
        if isinstance(key, str):
            return np.maximum.reduceat(np.asarray(self._rows[key][:]), self.bounds[:-1])
        return self.__getitems__([key])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several groups at once, as data loaders do."""
        ranges = [range(self.bounds[index], self.bounds[index + 1]) for index in indices]
        read = iter(self._rows.__getitems__([number for numbers in ranges for number in numbers]))
        return [{"documents": [next(read) for _ in numbers]} for numbers in ranges]

    def padding_share(self, order: Sequence[int], batch_size: int) -> float:
        """Return the share of padding in batches of so many groups, in the given order, from 0 to below 1."""
        longest, sizes = self["length"], np.diff(self.bounds)
        batches = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
        padded = sum(int(longest[batch].max() * sizes[batch].sum()) for batch in map(list, batches))
        return 1 - int(np.sum(self._rows["length"][:])) / padded if padded else 0.0
