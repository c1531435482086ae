"""Storing a teacher's vectors: every row once, whichever batch a process was killed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import limbeck
from limbeck.targets import writer
from limbeck.targets.facts import STORE_FACTS
from limbeck.targets.store import JOURNALS, Store

from .events import Event
from .inputs import documents, write_model, write_text
from .job import Job

_TEXTS = 600
_BATCH = 8
_BYTES_OF_A_FILE = 8_000
"""So few that the rows of a moment fill several files."""
_NEAR = 0.02
"""Largest difference of two numbers of one vector, which bfloat16 computes in batches of other texts."""
_EXPECTED = "expected"
_DIFFERENCE = "difference"


def prepare(inputs: Path) -> None:
    """Write a teacher and texts, and the store of a process that was never killed."""
    write_model(inputs / "teacher", layers=4)
    write_text(inputs / "text" / "0.txt", documents(_TEXTS, seed=6))
    _teach(inputs, inputs / _EXPECTED)


def run(inputs: Path, folder: Path) -> None:
    """Store the vectors of all texts, and note how far they are from those of the process that was never killed."""
    writer.FILE_BYTES = _BYTES_OF_A_FILE
    _teach(inputs, folder)
    store = Store(folder)
    expected = Store(inputs / _EXPECTED).read(store.keys)["vector"]
    difference = np.abs(store.read(store.keys)["vector"] - expected).max()
    (folder.parent / _DIFFERENCE).write_text(str(difference))


def kept(folder: Path) -> dict[str, Any]:
    """The keys of the rows in files and journals."""
    if not (folder / STORE_FACTS).is_file():
        return {}
    return dict.fromkeys(map(str, Store(folder).keys.tolist()), 1)


def lost(before: Mapping[str, Any], events: Sequence[Event], after: Mapping[str, Any]) -> list[str]:
    """Name rows that are gone, and rows that were in the store and were computed again."""
    problems = [f"row {key} is gone" for key in before if key not in after]
    for event in events:
        if event.name == "batch":
            problems += [f"row {key} was computed again" for key in event.detail.split() if key in before]
    return problems


def outcome(folder: Path) -> dict[str, Any]:
    """The keys, the number of rows in files, and whether the vectors are those of a process that was never killed."""
    store = Store(folder)
    return {
        "keys": store.keys.tolist(),
        "rows in files": sum(len(keys) for keys in store.keys_of_files()),
        "journals": len(list(folder.glob(JOURNALS))),
        "vectors are near": float((folder.parent / _DIFFERENCE).read_text()) < _NEAR,
    }


def _teach(inputs: Path, folder: Path) -> None:
    limbeck.teach(
        teacher=inputs / "teacher", corpus=[str(inputs / "text")], length=32, output=folder, batch_size=_BATCH
    )


JOBS = (Job("teaching", "vectors", prepare, run, kept, outcome, frozenset({"batch"}), lost=lost),)
