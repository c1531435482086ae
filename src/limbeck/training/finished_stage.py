"""Results of a finished stage in its folder, taken up by a resumed run and by later stages."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core.ranks import on_main_rank
from limbeck.core.records import Stage, load
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training import checkpoints
from limbeck.training.learned_maps import STUDENT_WEIGHTS, Learned
from limbeck.training.seals import file_damage
from limbeck.training.trainer import WEIGHTS
from limbeck.training.warn import Warn

DONE = Stage.FILE
"""File of a stage's folder that is written last of all: if it is there, the stage is finished."""


def load_finished(folder: Path, student: PreTrainedModel, warn: Warn, *, limit: int | None) -> Stage | None:
    """Restore a stage that an earlier run finished.

    Args:
        folder: The stage's folder.
        student: Gets the weights that the stage left.
        warn: Receives a line if they are damaged.
        limit: Number of checkpoints that the recipe keeps; None keeps all.

    Returns:
        The stage's record, or None if it is not finished, or has to be trained again.
    """
    record = on_main_rank(lambda: _finished_record(folder, warn, limit))
    if record is None:
        return None
    is_whole = take_weights(student, load_file(str(folder / WEIGHTS)))
    return record if is_whole else None


def learned_in(folder: Path, stage: StagePlan) -> Learned:
    """Read the learned maps and layer weights of a finished stage.

    Args:
        folder: The stage's folder.
        stage: The stage, with the terms that it was trained with.
    """
    with safe_open(str(folder / WEIGHTS), framework="pt") as weights:
        # The file is no mapping, though it has `keys`.
        names = [name for name in weights.keys() if not name.startswith(STUDENT_WEIGHTS)]  # noqa: SIM118
        return Learned(stage.terms, {name: weights.get_tensor(name) for name in names})


def take_weights(student: PreTrainedModel, weights: Mapping[str, Tensor]) -> bool:
    """Give a student its part of a stage's weights.

    Returns:
        Whether the weights are exactly those of the student: none is missing, and there are no others.
    """
    student_weights: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name.startswith(STUDENT_WEIGHTS):
            student_weights[name.removeprefix(STUDENT_WEIGHTS)] = tensor
    missing, unexpected = student.load_state_dict(student_weights, strict=False)
    # Tied weights are stored once, under one of their names, so that the other names are missing.
    tied = set(getattr(student, "all_tied_weights_keys", None) or {})
    return not unexpected and set(missing) <= tied


def _finished_record(folder: Path, warn: Warn, limit: int | None) -> Stage | None:
    """Read the record of a finished stage; None where it is not finished, or its weights are damaged."""
    if not (folder / DONE).is_file():
        return None
    record = load(Stage, folder)
    damage = file_damage(folder / WEIGHTS, record.weights)
    if damage is not None:
        warn(
            f"Stage '{folder.name}' was finished, but its files are damaged ({damage}), so the stage is trained again."
        )
        (folder / DONE).unlink()
        return None
    # A run that was killed at the end of the stage may not have removed them.
    checkpoints.remove_unneeded(folder, limit)
    return record
