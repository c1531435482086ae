"""What a finished stage leaves in its folder, and how a later run takes it up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core.files import read_json, write_atomically
from limbeck.core.ranks import from_main
from limbeck.training.checkpoint_files import file_damage, file_facts, sync
from limbeck.training.checkpoints import Warn, remove_checkpoints
from limbeck.training.live_log import LOG, log_lines
from limbeck.training.module import DistillationModule
from limbeck.training.saved_weights import save_weights
from limbeck.training.saving import saving
from limbeck.training.trainer import WEIGHTS

DONE = "stage.json"


def write_finished(
    folder: Path,
    module: DistillationModule,
    whole: Mapping[str, Tensor] | None,
    history: list[dict[str, Any]],
    record: dict[str, Any],
) -> None:
    """Write what a stage leaves, `stage.json` after all else: its presence means that the stage is done.

    The checkpoints are of no use from then on.

    Args:
        folder: The stage's folder.
        module: What was trained.
        whole: Its weights, if it is sharded.
        history: What was logged.
        record: The stage's part of the run record.
    """
    with saving(f"What stage '{record['name']}' leaves", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / LOG, log_lines(history))
        partial_weights = folder / (WEIGHTS + ".partial")
        save_weights(module, partial_weights, whole)
        sync(partial_weights)
        partial_weights.replace(folder / WEIGHTS)
        record["weights"] = file_facts(folder / WEIGHTS)
        write_atomically(folder / DONE, json.dumps(record, indent=2))
        sync(folder)
        remove_checkpoints(folder)


def load_finished(folder: Path, student: PreTrainedModel, warn: Warn) -> dict[str, Any] | None:
    """Take up a stage that an earlier run finished.

    Args:
        folder: The stage's folder.
        student: Gets the weights that the stage left.
        warn: Told if they are damaged.

    Returns:
        The stage's record, or None if it is not finished, or has to be trained again.
    """
    record = from_main(lambda: _finished_record(folder, warn))
    if record is None:
        return None
    return record if take_weights(student, load_file(str(folder / WEIGHTS))) else None


def take_weights(student: PreTrainedModel, weights: Mapping[str, Tensor]) -> bool:
    """Give a student its part of a stage's weights, and return whether they were all there."""
    prefix = "student."
    own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    missing, unexpected = student.load_state_dict(own, strict=False)
    # Tied weights are stored once; anything else that is missing belongs to another student.
    tied = set(getattr(student, "all_tied_weights_keys", {}) or {})
    return not unexpected and not set(missing) - tied


def _finished_record(folder: Path, warn: Warn) -> dict[str, Any] | None:
    if not (folder / DONE).is_file():
        return None
    record = read_json(folder / DONE)
    damage = file_damage(folder / WEIGHTS, record.get("weights"))
    if damage is not None:
        warn(f"Stage '{folder.name}' was finished but is damaged, and is trained again: {damage}.")
        (folder / DONE).unlink()
        return None
    remove_checkpoints(folder)  # If the run was killed while it did this.
    return record
