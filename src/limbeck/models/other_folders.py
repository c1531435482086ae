"""Folders that hold no model to load, but something near to one: an adapter, a graph, a training without weights.

A message that says what a folder is leads further than one that says which file it lacks.
"""

from __future__ import annotations

from pathlib import Path

from limbeck.errors import ModelError
from limbeck.models.folder_files import read_json

ADAPTER = "adapter_config.json"
"""The configuration of a PEFT adapter, which holds changes of another model's weights."""
_TRAINER_STATE = "trainer_state.json"
_SHARDS = "model-*-of-*.safetensors"


def other_folder_error(path: Path, name: str | Path | None = None) -> ModelError | None:
    """Return the error for a folder without a whole model, by what it is instead; None where nothing tells.

    Args:
        path: The folder.
        name: The model, as the user named it; None is the folder.
    """
    shown = f"'{name or path}'"
    if (path / ADAPTER).is_file():
        return adapter_error(path, name)

    checkpoints = [folder for folder in path.glob("checkpoint-*") if (folder / "config.json").is_file()]
    if checkpoints:
        last = max(checkpoints, key=_step_of)
        return ModelError(f"{shown} is the folder of a training, not of a model; its last checkpoint is '{last}'.")
    if (path / _TRAINER_STATE).is_file():
        return ModelError(
            f"{shown} holds the state of a training ({_TRAINER_STATE}) without the model's weights; give a folder that "
            "the trainer's save_model has written."
        )
    shards = sorted(path.glob(_SHARDS))
    if shards:
        return ModelError(
            f"{shown} holds a part of the weights ({shards[0].name}) without model.safetensors.index.json, which names "
            "all parts; copy or download the model again."
        )
    for suffix, description in ((".gguf", "a GGUF file"), (".onnx", "an ONNX graph")):
        files = sorted([*path.glob(f"*{suffix}"), *path.glob(f"onnx/*{suffix}")])
        if files:
            return ModelError(
                f"{shown} holds {description} ({files[0].relative_to(path)}) and no weights for PyTorch; give the "
                "folder of the model that it was made from."
            )
    return None


def adapter_error(path: Path, name: str | Path | None = None) -> ModelError:
    """Return the error for a folder with an adapter; see `other_folder_error`."""
    base = read_json(path / ADAPTER, {}).get("base_model_name_or_path")
    of_base = f" of '{base[:80]}'" if isinstance(base, str) and base else ""
    return ModelError(
        f"'{name or path}' holds an adapter{of_base} ({ADAPTER}), and its base model alone is a different "
        "model; merge the two first: merge_and_unload() of PEFT, then save_pretrained."
    )


def _step_of(folder: Path) -> int:
    """Return the step in the name of a checkpoint's folder; -1 where there is none."""
    _, _, step = folder.name.rpartition("-")
    return int(step) if step.isdecimal() else -1
