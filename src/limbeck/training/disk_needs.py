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

_BYTES_OF_PARAMETER = 4
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
    student_bytes = _BYTES_OF_PARAMETER * _count_parameters(plan.student_config, plan.head)
    stage_bytes = 0
    # Checkpoints of a finished stage are removed, so the stage whose checkpoints take the most room counts.
    checkpoints = 0
    checkpoint_bytes = 0
    for stage in plan.stages:
        if stage.student is None:
            weight_bytes = student_bytes
            stage_bytes += weight_bytes
        else:
            # A stage with a student of its own, in place of the recipe's, saves the finished student too.
            weight_bytes = _BYTES_OF_PARAMETER * _count_parameters(stage.student.config, stage.student_head)
            stage_bytes += 2 * weight_bytes
        count = _checkpoints_at_once(stage)
        size = _ADAM_COPIES * weight_bytes
        if count * size > checkpoints * checkpoint_bytes:
            checkpoints = count
            checkpoint_bytes = size

    needed = student_bytes + stage_bytes + checkpoints * checkpoint_bytes
    problem = missing_room(folder, needed - _bytes_of_stages(folder))
    if problem is not None:
        raise OutputError(
            f"The run needs {problem}: {checkpoints} checkpoints of {megabytes(checkpoint_bytes)} at once, and "
            f"{megabytes(student_bytes + stage_bytes)} for its stages and the student. Free some disk space, give "
            "another --output, or lower training.save_total_limit."
        )


def _checkpoints_at_once(stage: StagePlan) -> int:
    """Return how many checkpoints of a stage lie on the disk at once."""
    training = DEFAULTS | stage.spec.training
    limit = training["save_total_limit"]
    interval = training["save_steps"]
    if limit is not None:
        kept_checkpoints = int(limit)
    elif interval < 1:
        # All checkpoints are kept. The interval is a share of all steps.
        kept_checkpoints = int(1 / interval)
    else:
        # All are kept. Where steps are not known before the text is read, there is at least the last checkpoint.
        steps = training.get("max_steps", 1)
        kept_checkpoints = max(1, int(steps // interval))
    # While a checkpoint is written, the others are still there.
    count = kept_checkpoints + 1
    # The checkpoint of the best step stays beside the newest ones.
    if training.get("load_best_model_at_end"):
        count += 1
    return count


def _count_parameters(config: PreTrainedConfig, head: Head | None) -> int:
    """Count the parameters of a model without making its weights."""
    # Building a model may change its configuration.
    own_config = type(config)(**config.to_dict())
    with quiet(), torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = model_class(config, head)._from_config(own_config, dtype=torch.float32)
    return sum(parameter.numel() for parameter in model.parameters())


def _bytes_of_stages(folder: Path) -> int:
    """Return the bytes that the stages of a run have written already, checkpoints included."""
    return sum(path.stat().st_size for path in (folder / paths.STAGES).rglob("*") if path.is_file())
