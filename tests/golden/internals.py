"""Every name of limbeck's that is not public and that snapshots need: when a module moves, its line here changes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from limbeck.benchmark.loss import measured_objectives
from limbeck.core.files import fingerprint
from limbeck.corpus.packing import TokenEncoder
from limbeck.evaluation.cell import data_fingerprint, model_fingerprint, tokenizer_fingerprint, training_set_fingerprint
from limbeck.evaluation.metrics import METRICS
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.task_files import load_task
from limbeck.evaluation.tasks import DEFINITIONS, TASK_GROUPS, TASKS
from limbeck.export.formats import FORMATS
from limbeck.methods import METHODS
from limbeck.models.blueprint import presets
from limbeck.models.families import families
from limbeck.objectives import OBJECTIVES
from limbeck.training.trainer import DistillationTrainer

__all__ = [
    "DistillationTrainer",
    "encoder_fingerprint",
    "fingerprint",
    "model_fingerprint",
    "registered_contents",
    "registered_names",
    "rows_fingerprints",
    "tokenizer_fingerprint",
]


def encoder_fingerprint(tokenizer: Any) -> str:
    """Return the hash of what decides a corpus's tokens."""
    return TokenEncoder(tokenizer).fingerprint()


def rows_fingerprints(task: str, folder: Path) -> dict[str, str]:
    """Return the hashes of a task's rows and of those it is trained on."""
    data = load_task(task, data=folder)
    return {"rows": data_fingerprint(data), "training_set": training_set_fingerprint(data)}


def registered_names() -> dict[str, Any]:
    """Return the names in each registry; files, recipes and command lines hold them."""
    return {
        "families": sorted(families),
        "formats": list(FORMATS),
        "groups of tasks": sorted(TASK_GROUPS),
        "losses measured by limbeck benchmark": list(measured_objectives()),
        "methods": list(METHODS),
        "metrics": list(METRICS),
        "objectives": list(OBJECTIVES),
        "presets": list(presets),
        "protocols": list(PROTOCOLS),
        "tasks": list(TASKS),
    }


def registered_contents() -> dict[str, Any]:
    """Return what is registered as data, by kind and name."""
    return {
        "families": dict(families.items()),
        "groups of tasks": dict(TASK_GROUPS.items()),
        "presets": dict(presets.items()),
        "protocols": dict(PROTOCOLS.items()),
        "tasks": {name: _described(definition) for name, definition in DEFINITIONS.items()},
    }


def _described(definition: Any) -> dict[str, Any]:
    """Return a task without its leaderboards' files and its rules for answers, which tests of their own hold."""
    found = {field.name: getattr(definition, field.name) for field in fields(definition)}
    task = {field.name: getattr(definition.task, field.name) for field in fields(definition.task)}
    return found | {"task": {key: value for key, value in task.items() if key not in ("answer_rules", "submissions")}}
