"""Batches of rows of similar length, so that little is padded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BATCHES_SORTED_TOGETHER = 50


def group_by_length(
    order: NDArray[np.int64], lengths: NDArray[np.int64], batch_size: int, generator: np.random.Generator
) -> list[NDArray[Any]]:
    """Cut a random order of rows into batches of similar length, and put these into a random order.

    Args:
        order: Indices of rows in random order. The rows of fifty batches at a time are sorted by length.
        lengths: Length of every row.
        batch_size: Rows of a batch.
        generator: Decides the order of the batches.

    Returns:
        The row indices of each batch; a batch that is not full comes last.
    """
    rows_sorted_together = batch_size * _BATCHES_SORTED_TOGETHER
    full_batches: list[NDArray[Any]] = []
    last_batches: list[NDArray[Any]] = []
    for start in range(0, len(order), rows_sorted_together):
        rows = order[start : start + rows_sorted_together]
        longest_first = np.argsort(-lengths[rows], kind="stable")
        rows = rows[longest_first]
        for first in range(0, len(rows), batch_size):
            batch = rows[first : first + batch_size]
            if len(batch) == batch_size:
                full_batches.append(batch)
            else:
                last_batches.append(batch)

    # A batch that is not full has to be last: later code cuts the joined indices into batches of equal size.
    shuffled = [full_batches[index] for index in generator.permutation(len(full_batches))]
    return shuffled + last_batches


def padding_share(lengths: Sequence[int], batch_size: int) -> float:
    """Return the share of padding in batches made of `lengths` in the given order, from 0 to below 1."""
    padded_tokens = 0
    for start in range(0, len(lengths), batch_size):
        batch = lengths[start : start + batch_size]
        padded_tokens += max(batch) * len(batch)
    if padded_tokens == 0:
        return 0.0
    return 1 - sum(lengths) / padded_tokens
