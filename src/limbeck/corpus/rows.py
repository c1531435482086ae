"""`PlacedRow`: one row of a table, whatever it was read from, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import datasets


class PlacedRow(NamedTuple):
    """One row.

    Args:
        where: Where it stands, as messages name it: `"file:line"`, or the number or id of the row.
        values: Column → value.
        class_names: Column → names of its class numbers, where the source states them.
    """

    where: str
    values: Mapping[str, Any]
    class_names: Mapping[str, tuple[str, ...]] = {}


def class_names(features: datasets.Features | None) -> dict[str, tuple[str, ...]]:
    """Return the class names of every `ClassLabel` column.

    Args:
        features: Columns of a data set; `None` if they are not known before reading.
    """
    known = features or {}
    return {name: tuple(kind.names) for name, kind in known.items() if isinstance(kind, datasets.ClassLabel)}
