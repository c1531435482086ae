"""What a checkpoint was trained on, since results are the same to the last bit only on the same."""

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


def training_facts(arguments: TrainingArguments) -> dict[str, Any]:
    """Return what decides the last bits of a training step."""
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
    """Say in one line what has changed since a checkpoint was written.

    Args:
        checkpoint: The checkpoint that the run goes on from.
        facts: Those of this process, see `training_facts`.
        warn: Receives the line.
    """
    before = read_json(checkpoint / MANIFEST)
    changed = [
        f"{_TITLES.get(name, name)} ({before[name]}, now {fact})"
        for name, fact in facts.items()
        if name in before and before[name] != fact
    ]
    if changed:
        warn(
            f"Different from '{checkpoint.name}': {', '.join(changed)}; the run continues, but will not be "
            "identical to the last bit."
        )
