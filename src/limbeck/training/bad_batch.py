"""The batch of a step that went wrong, saved for study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from limbeck.core.ranks import process_count, process_index

FOLDER = "bad_batches"
_KEPT = 20


def save_bad_batch(folder: Path, step: int, batches: Sequence[Mapping[str, Any]], problem: str) -> Path | None:
    """Save the micro-batches of a step, the first twenty times.

    Args:
        folder: The stage's folder.
        step: The step, from 1.
        batches: Its micro-batches; tensor `x` of the second one is saved as `1.x`.
        problem: What went wrong with them; it is in the file's metadata beside the step.

    Returns:
        The file, of which each of several processes has one; None if there are enough, nothing to save, or the disk
        does not take it: it must not hide the problem.
    """
    tensors = {
        f"{index}.{name}": tensor.detach().cpu().contiguous()
        for index, batch in enumerate(batches)
        for name, tensor in batch.items()
        if isinstance(tensor, Tensor)
    }
    part = f".process-{process_index()}" if process_count() > 1 else ""
    target = folder / FOLDER / f"step-{step}{part}.safetensors"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        enough = len(list(target.parent.glob("step-*.safetensors"))) >= _KEPT * process_count() and not target.exists()
        if enough or not tensors:
            return None
        save_file(tensors, str(target), metadata={"step": str(step), "problem": problem})
    except (OSError, SafetensorError):
        return None
    return target
