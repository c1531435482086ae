"""`Job`: something that limbeck does, that can be killed, and that the same call goes on with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from .events import Event

# And whether the source tree had changes that were not committed at the moment.
_CLOCKS = ("commit", "seconds", "time", "runtime", "per_second", "created", "updated", "started", "finished_at", "flos")


def changed(before: Mapping[str, Any], events: Sequence[Event], after: Mapping[str, Any]) -> list[str]:
    """Name what was finished before an attempt and is not there, or not the same, after it."""
    return [name for name, value in before.items() if after.get(name) != value]


@dataclass(frozen=True)
class Job:
    """A job.

    Args:
        kind: `corpus`, `training`, `evaluation`, `search` or `teaching`.
        name: Which of its kind.
        prepare: Writes what it reads into a folder.
        run: Given that folder and its own, begins or goes on, to the end.
        kept: Of its own folder at any moment: what is finished, by name, so that making it again would show.
        outcome: Of its own folder after the end: all that does not depend on a clock.
        progress: Names of the events that say that it gets on.
        workers: Whether it has processes of its own.
        moves: Whether it goes on where its folder, its inputs and its cache lie elsewhere.
        lost: Given what was kept before an attempt, its events, and what was kept after it: what was lost.
    """

    kind: str
    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path, Path], None]
    kept: Callable[[Path], Mapping[str, Any]]
    outcome: Callable[[Path], Mapping[str, Any]]
    progress: frozenset[str]
    workers: bool = False
    moves: bool = False
    lost: Callable[[Mapping[str, Any], Sequence[Event], Mapping[str, Any]], list[str]] = changed


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights_below(folder: Path) -> dict[str, str]:
    """A hash of all numbers of every weights file.

    Not of the file: its header lists shared tensors in an order that the writer draws anew each time.
    """
    return {str(path.relative_to(folder)): _hash_of_weights(path) for path in sorted(folder.rglob("*.safetensors"))}


def _hash_of_weights(path: Path) -> str:
    content = hashlib.sha256()
    with safe_open(path, "pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def identity_of(path: Path) -> list[int]:
    """What changes when a file is written again, even with the same content."""
    facts = path.stat()
    return [facts.st_ino, facts.st_mtime_ns, facts.st_size]


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def without_clocks(value: Any) -> Any:
    """Leave out what a clock says, at any depth of plain values."""
    if isinstance(value, dict):
        return {key: without_clocks(one) for key, one in value.items() if not str(key).endswith(_CLOCKS)}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value
