"""Batches of rows of similar length."""

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
        order: Indices of rows, shuffled; fifty batches at a time are sorted by length.
        lengths: Length of every row.
        batch_size: Rows of a batch.
        generator: Decides the order of the batches.

    Returns:
        The indices of each batch; a last one that is not full stays last.
    """
    rows_sorted_together = batch_size * _BATCHES_SORTED_TOGETHER
    full: list[NDArray[Any]] = []
    rest: list[NDArray[Any]] = []
    for start in range(0, len(order), rows_sorted_together):
        part = order[start : start + rows_sorted_together]
        part = part[np.argsort(-lengths[part], kind="stable")]
        for first in range(0, len(part), batch_size):
            batch = part[first : first + batch_size]
            if len(batch) == batch_size:
                full.append(batch)
            else:
                rest.append(batch)
    # In the middle a batch that is not full would shift the bounds of all others.
    return [*(full[index] for index in generator.permutation(len(full))), *rest]


def padding_share(lengths: Sequence[int], batch_size: int) -> float:
    """Return the share of padding in batches made of `lengths` in the given order, from 0 to below 1."""
    real = sum(lengths)
    batches = (lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size))
    padded = sum(max(batch) * len(batch) for batch in batches)
    return 1 - real / padded if padded else 0.0
