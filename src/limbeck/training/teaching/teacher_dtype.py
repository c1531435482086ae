"""The numbers that a stage's teacher computes with."""

from limbeck.core.devices import bf16_is_fast
from limbeck.recipe.stage_plan import StagePlan


def teacher_dtype(stage: StagePlan) -> str:
    """Return the number format of a stage's teacher: the recipe's, or with `auto` the format of the training."""
    dtype = stage.teacher.spec.dtype
    if dtype != "auto":
        return dtype
    training = stage.spec.training
    # By default training is in bfloat16 on devices that are fast at it.
    trains_in_bf16 = training.get("bf16", bf16_is_fast() and not training.get("fp16"))
    return "bfloat16" if trains_in_bf16 else "float32"
