"""The folder of a comparison: one teacher, one corpus, one budget; methods, students and seeds may change."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import torch
from rich.console import Console

from limbeck.comparison.cells import Cell, Combination, Impossible
from limbeck.core.files import atomic_text, read_record
from limbeck.core.folders import FolderKind, first_difference
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.errors import Interrupted, LimbeckError, OutputError
from limbeck.training.run import STUDENT

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


def check_fixed(folder: Path, saved: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to put runs beside others that they cannot be compared with.

    Args:
        folder: The folder of the comparison.
        saved: Its record.
        asked: What has to be the same for all runs in it, by name; plain values.

    Raises:
        OutputError: naming the first difference, and the way out.
    """
    fixed = saved.get("fixed", {})
    if not isinstance(fixed, dict):
        raise OutputError(f"'{folder / RECORD}' is no record of a comparison; choose another folder.")
    common = [name for name in fixed if name in asked]
    difference = first_difference({name: fixed[name] for name in common}, {name: asked[name] for name in common})
    if difference is not None:
        name, _, below = difference.place.partition(".")
        old, new = (f"{f'{below} = ' if below else ''}{_shown(value)}" for value in (difference.old, difference.new))
        raise OutputError(
            f"The {_MEANINGS[name]} of the comparison in '{folder}' is {old}, and now {new}: its runs could not be "
            "compared with new ones; put it back, or give another --output."
        )


def _shown(value: Any) -> str:
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)


COMPARISON = FolderKind("comparison", RECORD, check_fixed, way_out="put it back, or choose another folder")


# Distilling the cells of a comparison one by one: what is finished is never repeated, what fails stops nothing.


Distil: TypeAlias = Callable[[dict[str, Any]], object]
"""Carries a recipe out in its `output`, going on where an earlier run of it stopped."""


def is_distilled(run: Path) -> bool:
    """Whether a run is finished, and its student is there."""
    return read_record(run).get("status") == "finished" and (run / STUDENT / "config.json").is_file()


def distil_cells(
    cells: Sequence[Cell], folder: Path, distil: Distil, console: Console
) -> Iterator[tuple[Cell, str | None]]:
    """Distil what is not yet.

    Args:
        cells: All cells, in this order.
        folder: Of the comparison.
        distil: Carries out one recipe.
        console: Is told which run it is, and about how long the rest takes.

    Yields:
        Each cell once it is settled, and why it failed, in one line; None where it did not.

    Raises:
        Interrupted: on Ctrl-C; the run that it met goes on from its checkpoint.
    """
    missing = [cell for cell in cells if not is_distilled(cell.folder(folder))]
    took: list[float] = []
    for cell in cells:
        if cell not in missing:
            yield cell, None
            continue
        _announce(cell, len(took) + 1, len(missing), took, console)
        started = time.monotonic()
        problem: str | None = None
        try:
            distil({**cell.recipe, "output": str(cell.folder(folder))})
        except (Interrupted, KeyboardInterrupt) as stopped:
            done = len(cells) - len(missing) + len(took)
            kind = type(stopped) if isinstance(stopped, Interrupted) else Interrupted  # SIGTERM has a code of its own.
            raise kind(
                f"Stopped at {cell.title}; {done} of {len(cells)} runs are done and kept in '{folder}'; the same "
                "command goes on from there."
            ) from None
        except LimbeckError as error:
            problem = one_line(error)
        except Exception as error:  # A fault in one run must not take the others with it.
            problem = f"{type(error).__name__}: {one_line(error)}"
        took.append(time.monotonic() - started)
        if problem is not None:
            console.print(f"  failed: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
        _free_memory()
        yield cell, problem


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())


def _announce(cell: Cell, number: int, count: int, took: Sequence[float], console: Console) -> None:
    left = sum(took) / len(took) * (count - number + 1) if took else None
    rest = "" if left is None else f" (about {_duration(left)} for this and the rest)"
    console.print(f"Run {number} of {count}: {cell.title}{rest}", highlight=False, markup=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _free_memory() -> None:
    """A trainer holds itself in circles; without this two runs' models would be in memory at once."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# The record of a comparison: `comparison.json`, whole at every turn.


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
        atomic_text(self._path, json.dumps(self.fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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
