"""`Drift`: how far the rows of a store are from what the teacher says of the same texts now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Drift(NamedTuple):
    """The difference between stored rows and those of the teacher now.

    Args:
        cosine: The least cosine between a stored row and the teacher's, over all rows and streams.
        difference: The largest difference of a number, as a share of the largest number of the teacher's.
        rows: Rows that were compared.
    """

    cosine: float
    difference: float
    rows: int


def measure_drift(stored: Mapping[str, NDArray[np.float32]], current: Mapping[str, NDArray[np.float32]]) -> Drift:
    """Compare stored rows with those of the teacher now.

    Args:
        stored: Each stream by its name, `[rows, width]`; at least one row.
        current: The same streams of the same texts, as the teacher gives them now.
    """
    cosines = []
    differences = []
    rows = 0
    for name, values in stored.items():
        first = values.astype(np.float64)
        second = current[name].astype(np.float64)
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        # A row of zeros has no direction. Its cosine counts as 0.
        products = (first * second).sum(axis=1)
        cosines.append(float(np.where(lengths > 0, products / np.maximum(lengths, 1e-30), 0.0).min()))
        differences.append(float(np.abs(first - second).max() / np.abs(second).max()))
        rows = len(values)
    return Drift(min(cosines), max(differences), rows)
