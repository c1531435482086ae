"""Committed folders of every kind: those that version 0.1.0 wrote, and records of larger or other ones."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.write_shipped import SHIPPED

OWN = Path(__file__).parent / "folders"
_SHIPPED = (
    "finished", "killed", "comparison", "search-mapping", "search-killed", "search-architecture",
    "search-teacher-layer", "evaluation", "inspections", "export-onnx-int8",
)  # fmt: skip
FOLDERS = {name: SHIPPED / "0.1.0" / name for name in _SHIPPED} | {path.name: path for path in sorted(OWN.iterdir())}
