"""Facts of a training that decide its last bits: a resumed run warns if one of them has changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from limbeck.core.devices import device_name
from limbeck.core.files import read_json
from limbeck.core.paths import MANIFEST
from limbeck.training.warn import Warn

_TITLES = {"processes": "number of processes", "threads": "number of threads", "torch": "version of torch"}
"""Facts whose names in a message differ from those in a checkpoint."""


def training_facts(arguments: TrainingArguments) -> dict[str, Any]:
    """Return the device, number format, processes, threads and version of PyTorch of a training."""
    return {
        "device": device_name(arguments.device),
        "precision": precision(arguments),
        "processes": arguments.world_size,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def precision(arguments: TrainingArguments) -> str:
    """Return the name of the number format that training computes in."""
    if arguments.bf16:
        return "bfloat16"
    if arguments.fp16:
        return "float16"
    return "float32"


def warn_of_differences(checkpoint: Path, facts: Mapping[str, Any], warn: Warn) -> None:
    """Warn in one line of the facts that have changed since a checkpoint was written.

    Args:
        checkpoint: The checkpoint that the run goes on from.
        facts: The facts of this process, see `training_facts`.
        warn: Receives the line.
    """
    before = read_json(checkpoint / MANIFEST)
    changed: list[str] = []
    for name, fact in facts.items():
        # Older checkpoints lack some facts.
        if name in before and before[name] != fact:
            changed.append(f"{_TITLES.get(name, name)} ({before[name]}, now {fact})")
    if changed:
        warn(
            f"Changed since '{checkpoint.name}': {', '.join(changed)}. The run continues, but its result will "
            "differ in the last bits."
        )
