"""`GroupedRows`: the documents of a query, read together."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
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
        self.bounds = _group_bounds(np.asarray(table.with_format("numpy")[QUERY][:]), most)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, key: Any) -> Any:
        """Return a group; by the name of a column, the largest value in each group, as `length` is needed."""
        if isinstance(key, str):
            column = np.asarray(self._rows[key][:])
            # One maximum for each stretch between two bounds.
            return np.maximum.reduceat(column, self.bounds[:-1])
        return self.__getitems__([key])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several groups at once, as data loaders do."""
        row_numbers: list[int] = []
        for index in indices:
            row_numbers.extend(range(self.bounds[index], self.bounds[index + 1]))
        documents = list(self._rows.__getitems__(row_numbers))

        groups = []
        start = 0
        for index in indices:
            end = start + int(self.bounds[index + 1] - self.bounds[index])
            groups.append({"documents": documents[start:end]})
            start = end
        return groups

    def padding_share(self, order: Sequence[int], batch_size: int) -> float:
        """Return the share of padding in batches of so many groups, in the given order, from 0 to below 1."""
        longest = self["length"]
        sizes = np.diff(self.bounds)
        padded_tokens = 0
        for start in range(0, len(order), batch_size):
            batch = list(order[start : start + batch_size])
            # Every document of a batch is padded to its longest one.
            padded_tokens += int(longest[batch].max() * sizes[batch].sum())
        if padded_tokens == 0:
            return 0.0
        real_tokens = int(np.sum(self._rows["length"][:]))
        return 1 - real_tokens / padded_tokens


def _group_bounds(queries: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return where each group of documents begins, and where the last one ends.

    Args:
        queries: Number of the query of each row.
        most: Most documents of a group.
    """
    changes = np.flatnonzero(queries[1:] != queries[:-1]) + 1
    query_bounds = [0, *changes.tolist(), len(queries)]
    bounds = [0]
    for start, end in pairwise(query_bounds):
        size = end - start
        parts = -(-size // most)  # Rounded up.
        bounds.extend(start + part * size // parts for part in range(1, parts + 1))
    return np.array(bounds)
