"""The record of a comparison: `comparison.json`, whole at every turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from limbeck.comparison.cells import Cell, Combination
from limbeck.comparison.checks import Impossible
from limbeck.comparison.distilling import is_distilled
from limbeck.comparison.folder import RECORD
from limbeck.core.files import read_record, write_atomically
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.training.run import STUDENT


class ComparisonRecord:
    """The record, on disk.

    Args:
        folder: Of the comparison.
        saved: The record of an earlier call.
        fields: What is known from the start.
    """

    def __init__(self, folder: Path, saved: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        self._path = folder / RECORD
        self.fields: dict[str, Any] = {
            "created": saved.get("created", _now()),
            **fields,
            "versions": versions(),
            "git_commit": git_commit(),
            "hardware": hardware(),
        }

    def set(self, status: str, **fields: Any) -> None:
        """Add fields and write the record.

        Args:
            status: `running`, `finished`, `failed` (something is missing) or `interrupted`.
            **fields: What is new.
        """
        self.fields |= {**fields, "status": status, "updated": _now()}
        write_atomically(self._path, json.dumps(self.fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def describe_cell(cell: Cell, shape: str, folder: Path, problem: str | None) -> dict[str, Any]:
    """Describe a run by what it has left in its folder.

    Args:
        cell: The run.
        shape: Of its student.
        folder: Of the comparison.
        problem: Why it failed in this call; None where it did not.
    """
    run = cell.folder(folder)
    record = read_record(run)
    stages = record.get("stages") or []
    status = "finished" if is_distilled(run) else "failed" if problem else record.get("status", "missing")
    return {
        **describe_combination(cell.combination),
        "title": cell.title,
        "seed": cell.seed,
        "id": cell.id,
        "shape": shape,
        "status": status,
        "problem": problem or (record.get("problem") if status == "failed" else None),
        "folder": str(run.relative_to(folder)),
        "model": str(run / STUDENT),
        "steps": [stage["steps"] for stage in stages] or list(cell.steps),
        "tokens": sum(stage["tokens"] for stage in stages),
        "seconds": record.get("timings", {}).get("total", 0.0),
        "held_out": None,
        "unavailable": {},
        "scores": {},
        "versions": record.get("versions"),
        "git_commit": record.get("git_commit"),
        "device": record.get("hardware", {}).get("device"),
    }


def describe_combination(combination: Combination) -> dict[str, str]:
    """Name a combination's parts."""
    return {
        "student": combination.student.title,
        "method": combination.variant.method,
        "mapping": combination.variant.mapping,
    }


def describe_impossible(impossible: Sequence[Impossible]) -> list[dict[str, str]]:
    """Describe what was left out, and why."""
    return [{**describe_combination(found.combination), "reason": found.reason} for found in impossible]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
