"""Values of records that may be damaged, and the names of runs, models and shapes in reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
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


# What a run, comparison or search is called in cards and reports: by its folder where nobody named it.


_DEFAULTS = ("run", "comparison", "mapping", "architecture", "teacher-layer")


def title_of(name: Any, folder: Path) -> str:
    """Return a name, or the folder's where it is none, or the one that everything of its kind has by default.

    Args:
        name: As the record has it.
        folder: Of the run, comparison or search.
    """
    given = " ".join(str(name).split()) if name is not None else ""
    return folder.resolve().name or given if given in ("", *_DEFAULTS) else given


# Names of models as a figure or a line has room for them; a report says where they lie in its provenance.


def last_part(name: str) -> str:
    """Return the last part of a name; of the student in a run's folder, the run's."""
    parts = [part for part in name.removeprefix("package:").rstrip("/").split("/") if part]
    return parts[-2] if len(parts) > 1 and parts[-1] == "student" else parts[-1] if parts else name


def without_path(name: str) -> str:
    """Return a name of the Hub or of a package as it is, and of a folder its last part."""
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return last_part(name) if is_path else name


def describe_shape(shape: Mapping[str, Any]) -> str:
    """Write a shape as the student's blueprint is written."""
    return f"{shape['layers']}x{shape['hidden']}, {shape['heads']} heads, FFN {shape['ffn']}"
