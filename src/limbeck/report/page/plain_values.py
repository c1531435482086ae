"""Reading values out of files that may be damaged: what is not there, or is something else, is nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def entry(value: Any, *path: str) -> Any:
    """Follow keys into nested mappings; None as soon as one is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """Follow keys to a mapping; an empty one for anything else."""
    found = entry(value, *path)
    return found if isinstance(found, Mapping) else {}


def entries(value: Any, *path: str) -> list[Mapping[str, Any]]:
    """Follow keys to a list, and return the mappings in it."""
    found = entry(value, *path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def number(value: Any, *path: str) -> float | None:
    """Follow keys to a finite number; None for anything else."""
    found = entry(value, *path)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    try:
        return float(found) if math.isfinite(found) else None
    except OverflowError:
        return None


def text(value: Any, *path: str) -> str:
    """Follow keys to a value and write it on one line; empty where there is none."""
    found = entry(value, *path)
    return "" if found is None or isinstance(found, (Mapping, list)) else " ".join(str(found).split())


def texts(value: Any, *path: str) -> list[str]:
    """Follow keys to a list, and write each of its values on a line."""
    found = entry(value, *path)
    plain = found if isinstance(found, Sequence) and not isinstance(found, str) else []
    return [" ".join(str(item).split()) for item in plain]
