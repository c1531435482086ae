"""`Drift`: how far the rows of a store are from what the teacher says of the same texts now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.core.blocks import counted
from limbeck.errors import ModelError
from limbeck.targets.facts import StoreFacts

_ROUNDING = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 4e-2, "int8": 2e-2}
"""Largest `Drift.difference` that numbers of a kind explain: they round, and products are summed in another order."""
_TINY = 1e-30
"""A divisor in place of 0, whose quotient is not used."""


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

    Raises:
        ModelError: for a teacher that gives nothing but zeros, of which no difference is a share.
    """
    cosines = []
    differences = []
    rows = 0
    for name, stored_values in stored.items():
        before = stored_values.astype(np.float64)
        now = current[name].astype(np.float64)
        rows = len(before)
        largest_number = np.abs(now).max()
        if largest_number == 0:
            raise ModelError(
                f"The teacher gives nothing but zeros for the {name} of {counted(rows, 'text')}, so the store cannot "
                "be compared with it; give the teacher that the store was made with."
            )

        # A row of zeros has no direction. Its cosine counts as 0.
        lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(now, axis=1)
        products = (before * now).sum(axis=1)
        cosines_of_rows = np.where(lengths > 0, products / np.maximum(lengths, _TINY), 0.0)
        cosines.append(float(cosines_of_rows.min()))

        largest_difference = np.abs(before - now).max()
        differences.append(float(largest_difference / largest_number))
    return Drift(cosine=min(cosines), difference=max(differences), rows=rows)


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
