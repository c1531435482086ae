"""What a checkpoint was trained on, since results are the same to the last bit only on the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from limbeck.core.files import read_json
from limbeck.training.checkpoint_files import MANIFEST
from limbeck.training.checkpoints import Warn

_TITLES = {
    "device": "device",
    "precision": "precision",
    "processes": "number of processes",
    "threads": "number of threads",
    "torch": "version of torch",
}


def training_facts(arguments: TrainingArguments) -> dict[str, Any]:
    """Return what decides the last bits of a training step."""
    cuda = arguments.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(arguments.device) if cuda else arguments.device.type,
        "precision": precision(arguments),
        "processes": arguments.world_size,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def precision(arguments: TrainingArguments) -> str:
    """Name the number format that training computes in."""
    return "bfloat16" if arguments.bf16 else "float16" if arguments.fp16 else "float32"


def warn_of_differences(checkpoint: Path, facts: Mapping[str, Any], warn: Warn) -> None:
    """Say in one line what has changed since a checkpoint was written.

    Args:
        checkpoint: The checkpoint that the run goes on from.
        facts: What it goes on with, see `training_facts`.
        warn: Told about it.
    """
    before = read_json(checkpoint / MANIFEST)
    changed = [
        f"{title} ({before[name]}, now {facts[name]})"
        for name, title in _TITLES.items()
        if name in before and before[name] != facts[name]
    ]
    if changed:
        warn(f"Other than in '{checkpoint.name}': {', '.join(changed)}; the run goes on, but not to the same last bit.")
