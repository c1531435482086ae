"""A run's record and sign of life on disk: written whole or not at all, read without loading anything heavy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RECORD = "run.json"
HEARTBEAT = "heartbeat.json"


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a file so that a reader sees the old or the new text, never a part.

    Args:
        path: The file.
        text: Its new content.
        durable: Wait until it is on the disk, so that it also outlives a loss of power.
    """
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    partial.replace(path)


def read_record(folder: Path) -> dict[str, Any]:
    """Read a run's record; empty where there is none or it cannot be read."""
    return read_json(folder / RECORD)


def record_damage(folder: Path) -> str | None:
    """Say in a line that a run's record is there and cannot be read; None where all is well, or there is none."""
    path = folder / RECORD
    # A record that is whole is never empty.
    if not path.is_file() or read_record(folder):
        return None
    return f"'{path}' is damaged and cannot be read: what the run was and how it ended is not known from it."


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; empty where there is none or it cannot be read."""
    try:
        if not path.is_file():  # Of a pipe or a device there is no end.
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
