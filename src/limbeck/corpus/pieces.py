"""Pieces of a folder in the making: each complete or not there, so that a killed builder's work is taken up."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SUFFIX = ".piece.json"


def finish_piece(folder: Path, name: str, files: Sequence[str], content: dict[str, Any]) -> None:
    """Vouch for some files: they are on the disk, and so is what is to be known of them.

    Args:
        folder: The folder in the making.
        name: Name of the piece.
        files: Names of its files.
        content: What the next builder has to know, plain JSON values.
    """
    for file in files:
        with (folder / file).open("rb") as written:
            os.fsync(written.fileno())
    sizes = {file: (folder / file).stat().st_size for file in files}
    partial = folder / f"{name}.partial"
    with partial.open("w", encoding="utf-8") as file_:
        json.dump({"files": sizes, "content": content}, file_)
        file_.flush()
        os.fsync(file_.fileno())
    partial.replace(folder / f"{name}{_SUFFIX}")


def read_piece(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what a builder left of a piece, or `None` if it did not finish it."""
    try:
        piece = json.loads((folder / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
        whole = all((folder / file).stat().st_size == size for file, size in piece["files"].items())
        return dict(piece["content"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def piece_notes(folder: Path) -> list[Path]:
    """List what is known of the pieces, and what a killed builder left half written of it; their files are others."""
    return [*folder.glob(f"*{_SUFFIX}"), *folder.glob("*.partial")]


def remove_pieces(folder: Path) -> None:
    """Remove what is known of the pieces; their files stay."""
    for path in piece_notes(folder):
        path.unlink()
