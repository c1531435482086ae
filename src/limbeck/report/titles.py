"""What a run, comparison or search is called in cards and reports: by its folder where nobody named it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_DEFAULTS = ("run", "comparison", "mapping", "architecture", "teacher-layer")


def title_of(name: Any, folder: Path) -> str:
    """Return a name, or the folder's where it is none, or the one that everything of its kind has by default.

    Args:
        name: As the record has it.
        folder: Of the run, comparison or search.
    """
    given = " ".join(str(name).split()) if name is not None else ""
    return folder.resolve().name or given if given in ("", *_DEFAULTS) else given
