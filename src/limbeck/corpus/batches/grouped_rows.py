"""`GroupedRows`: the rows of a ranking corpus in groups, each with the documents of one query."""

import math
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from limbeck.corpus.tokens.encoded_rows import QUERY


class GroupedRows(Dataset[dict[str, Any]]):
    """The rows of a ranking corpus as a data set of groups.

    A row is a pair of a query and a document, and consecutive rows of the same query are one group. A query with more
    than `most` documents becomes several groups of nearly equal size.

    Args:
        rows: Pairs as token rows, read by number; they may be wrapped, for example in `ReplacedTokens`.
        table: The same rows as they are stored, with the column `QUERY`.
        most: Most documents of a group.

    Attributes:
        bounds: Index of the first row of each group, and at the end the number of all rows, `[groups + 1]`.
    """

    def __init__(self, rows: Any, table: Any, most: int) -> None:
        self._rows = rows
        query_of_row = np.asarray(table.with_format("numpy")[QUERY][:])
        self.bounds = _group_bounds(query_of_row, most)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, key: Any) -> Any:
        """Return the group with a number; for the name of a column, the largest value of each group.

        Samplers read the column `length` in this way, to group batches by length.
        """
        if isinstance(key, str):
            column = np.asarray(self._rows[key][:])
            first_rows = self.bounds[:-1]
            return np.maximum.reduceat(column, first_rows)  # One maximum from each of these rows to the next.
        (group,) = self.__getitems__([key])
        return group

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several groups at once, as data loaders do."""
        # The rows of all groups are read in one go, and then divided.
        rows_of_groups = [range(self.bounds[index], self.bounds[index + 1]) for index in indices]
        rows = list(self._rows.__getitems__(list(chain.from_iterable(rows_of_groups))))
        groups = []
        start = 0
        for rows_of_group in rows_of_groups:
            end = start + len(rows_of_group)
            groups.append({"documents": rows[start:end]})
            start = end
        return groups

    def padding_share(self, order: Sequence[int], batch_size: int) -> float:
        """Return the share of padding in batches of `batch_size` groups in a given order, at least 0 and below 1."""
        longest = self["length"]
        sizes = np.diff(self.bounds)
        padded_tokens = 0
        for start in range(0, len(order), batch_size):
            groups = list(order[start : start + batch_size])
            # All documents of a batch are padded to the longest.
            padded_tokens += int(longest[groups].max() * sizes[groups].sum())
        if padded_tokens == 0:
            return 0.0
        real_tokens = int(np.sum(self._rows["length"][:]))
        return 1 - real_tokens / padded_tokens


def _group_bounds(queries: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return the index of the first row of each group, and at the end the number of all rows.

    Args:
        queries: Number of the query of each row.
        most: Most documents of a group.
    """
    first_of_further_queries = np.flatnonzero(queries[1:] != queries[:-1]) + 1
    query_bounds = [0, *first_of_further_queries.tolist(), len(queries)]
    bounds = [0]
    for start, end in pairwise(query_bounds):
        documents = end - start
        groups = math.ceil(documents / most)
        for group in range(1, groups + 1):
            end_of_group = start + group * documents // groups
            bounds.append(end_of_group)
    return np.array(bounds)
