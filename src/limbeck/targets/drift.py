"""`Drift`: how far the rows of a store are from what the teacher says of the same texts now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.targets.facts import StoreFacts

_ROUNDING = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 4e-2, "int8": 2e-2}
"""Largest `Drift.difference` that numbers of a kind explain: they round, and products are summed in another order."""


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


def describe_drift(drift: Drift, facts: StoreFacts) -> str:
    """Return a sentence that says whether rounding explains the difference between a store and its teacher.

    Args:
        drift: The difference.
        facts: The facts of the store. Earlier stores do not know what their teacher computed in; bfloat16 is assumed.
    """
    computed_in = facts.computed_in or "bfloat16"
    numbers = " and ".join(sorted({computed_in, facts.number_format}))
    most = max(_ROUNDING[computed_in], _ROUNDING[facts.number_format])
    if drift.difference <= most:
        return f"The teacher says the same as when the store was made, up to the rounding of {numbers}."
    return (
        f"The teacher, or a library below it, has changed since the store was made: rounding of {numbers} explains "
        f"differences up to {most:g}."
    )
