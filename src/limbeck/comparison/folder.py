"""The folder of a comparison: one teacher, one corpus, one budget; methods, students and seeds may change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.errors import OutputError

RECORD = "comparison.json"
_MEANINGS = {
    "teacher": "teacher",
    "corpus": "corpus",
    "budget": "budget",
    "training": "training arguments common to all runs",
    "evaluation": "evaluation (preset and settings)",
    "teacher_weights": "teacher's weights",
    "text": "text of the corpus",
}


def prepare_comparison(folder: Path, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Make or take up the folder of a comparison.

    Args:
        folder: The folder.
        fixed: What has to be the same for all runs in it, by name; plain values.

    Returns:
        The record that is there; empty in a new folder.

    Raises:
        OutputError: if it is a file, holds something else, cannot be read or written, or a comparison of another
            teacher, corpus, budget, evaluation or other common arguments.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    if folder.is_dir() and any(folder.iterdir()):
        record = _read(folder)
        check_fixed(folder, record.get("fixed", {}), fixed)
        return record
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None
    return {}


def check_fixed(folder: Path, saved: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to put runs beside others that they cannot be compared with.

    Raises:
        OutputError: naming the first difference, and the way out.
    """
    for name in saved:
        if name in asked and saved[name] != asked[name]:
            old, new = _first_difference(saved[name], asked[name])
            raise OutputError(
                f"The {_MEANINGS[name]} of the comparison in '{folder}' is {old}, and now {new}: its runs could not be "
                "compared with new ones; put it back, or give another --output."
            )


def _read(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError(f"Output folder '{folder}' holds no comparison; choose an empty or new folder.") from None
    except (OSError, ValueError, RecursionError):
        raise OutputError(f"'{folder / RECORD}' cannot be read; put it back, or choose another folder.") from None
    if not isinstance(found, dict) or not isinstance(found.get("fixed", {}), dict):
        raise OutputError(f"'{folder / RECORD}' is no record of a comparison; choose another folder.")
    return found


def _first_difference(old: Any, new: Any, place: str = "") -> tuple[str, str]:
    """Show the first place where two values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{place}{key}.")
    name = f"{place.rstrip('.')} = " if place else ""
    return f"{name}{_shown(old)}", f"{name}{_shown(new)}"


def _shown(value: Any) -> str:
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)
