"""The disk space of a run, estimated before it begins: checkpoints, the weights of stages, and students.

Estimates are from the numbers of parameters, at four bytes each. Learned maps, tokenizers, logs and the text in the
cache are not part of them.
"""

from pathlib import Path

import torch
from transformers import PreTrainedConfig

from limbeck.core import paths
from limbeck.core.disk_space import megabytes, missing_room
from limbeck.errors import OutputError
from limbeck.models.heads import Head, model_class
from limbeck.models.quiet import quiet
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_fields import DEFAULTS

_BYTES = 4
"""Bytes of a parameter in float32."""
_ADAM_COPIES = 3
"""Numbers that a checkpoint holds for a parameter under Adam: its weight and two moments."""


def check_disk(plan: RunPlan, folder: Path) -> None:
    """Refuse a run that will not find room for what it writes; what is in its folder already counts as written.

    Args:
        plan: The plan of the run.
        folder: Its folder.

    Raises:
        OutputError: with the numbers.
    """
    student = _BYTES * _count_parameters(plan.student_config, plan.head)
    weights_of_stages = 0
    # Checkpoints of a finished stage are removed, so the stage whose checkpoints take the most room counts.
    checkpoints = 0
    largest_checkpoint = 0
    bytes_of_checkpoints = 0
    for stage in plan.stages:
        if stage.student is None:
            weights = student
            weights_of_stages += weights
        else:
            # A stage with a student of its own, in place of the recipe's, saves the finished student too.
            weights = _BYTES * _count_parameters(stage.student.config, stage.student_head)
            weights_of_stages += 2 * weights
        count = _checkpoints_at_once(stage)
        if count * _ADAM_COPIES * weights > bytes_of_checkpoints:
            checkpoints = count
            largest_checkpoint = _ADAM_COPIES * weights
            bytes_of_checkpoints = checkpoints * largest_checkpoint

    needed = student + weights_of_stages + bytes_of_checkpoints
    problem = missing_room(folder, needed - _written(folder))
    if problem is not None:
        raise OutputError(
            f"The run needs {problem}: {checkpoints} checkpoints of {megabytes(largest_checkpoint)} at once, and "
            f"{megabytes(student + weights_of_stages)} for its stages and the student. Make room, give another "
            "--output, or lower training.save_total_limit."
        )


def _checkpoints_at_once(stage: StagePlan) -> int:
    """Return how many checkpoints of a stage lie on the disk at once."""
    training = DEFAULTS | stage.spec.training
    limit = training["save_total_limit"]
    if limit is None:
        # All are kept; where steps are not known before the text is read, at least the last one.
        steps = training.get("max_steps", 1)
        # An interval below 1 is a share of all steps.
        interval = training["save_steps"]
        limit = max(1, int(steps // interval)) if interval >= 1 else int(1 / interval)
    # A new one is written before the oldest is removed, and the best one stays.
    return int(limit) + (2 if training.get("load_best_model_at_end") else 1)


def _count_parameters(config: PreTrainedConfig, head: Head | None) -> int:
    """Count the parameters of a model without making its weights."""
    # Building a model may change its configuration.
    own_config = type(config)(**config.to_dict())
    with quiet(), torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = model_class(config, head)._from_config(own_config, dtype=torch.float32)
    return sum(parameter.numel() for parameter in model.parameters())


def _written(folder: Path) -> int:
    """Return the bytes that the stages of a run have written already."""
    return sum(path.stat().st_size for path in (folder / paths.STAGES).rglob("*") if path.is_file())
