"""Committed folders of every kind: those that released versions wrote, and records of larger or other ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fixtures.write_shipped import SHIPPED

OWN = Path(__file__).parent / "folders"
_SHIPPED = (
    "finished", "killed", "comparison", "search-mapping", "search-killed", "search-architecture",
    "search-teacher-layer", "evaluation", "inspections", "export-onnx-int8",
)  # fmt: skip
#: What is added to the name of a snapshot, by version: nothing for the first.
SUFFIXES = {path.name: f"-{path.name}".removesuffix("-0.1.0") for path in sorted(SHIPPED.iterdir()) if path.is_dir()}
FOLDERS = {f"{name}{suffix}": SHIPPED / version / name for version, suffix in SUFFIXES.items() for name in _SHIPPED}
FOLDERS |= {path.name: path for path in sorted(OWN.iterdir())}


def read(folder: str, name: str) -> dict[str, Any]:
    """Read a committed record."""
    return json.loads((FOLDERS[folder] / name).read_text(encoding="utf-8"))
