"""Stages that go on with another number of steps: whether they train as with that number from the start."""

import math
from collections.abc import Sequence
from typing import Any

from limbeck.core.records import StepsChange
from limbeck.methods.transforms import AnnealedScores
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_fields import DEFAULTS


def judge_changes(changes: Sequence[StepsChange], stages: Sequence[StagePlan]) -> list[StepsChange]:
    """Keep the changes of stages that had begun, and note whether they train on as with these steps from the start.

    Args:
        changes: The changes.
        stages: The stages of the plan to go on with.
    """
    judged: list[StepsChange] = []
    for change in changes:
        if change.step == 0:
            continue
        (stage,) = [stage for stage in stages if stage.spec.title == change.stage]
        change.schedule = str(_argument(stage, "lr_scheduler_type"))
        change.as_from_start = _trains_on_alike(stage, change)
        judged.append(change)
    return judged


def _trains_on_alike(stage: StagePlan, change: StepsChange) -> bool:
    """Whether the steps that were done are those of a run that had the new number of steps from the start.

    They are if nothing that they used depends on the number of all steps: neither the terms nor the learning rate.
    """
    follows_progress = any(isinstance(term.transform, AnnealedScores) for term in stage.terms)
    if follows_progress:
        return False
    if change.schedule == "constant":
        return True
    if change.schedule != "constant_with_warmup" or "warmup_ratio" in stage.spec.training:
        return False
    warmup = float(_argument(stage, "warmup_steps"))
    if warmup >= 1:
        return True
    # A number below 1 is a share of all steps, rounded up. Under a longer warm-up the first steps have lower rates.
    return math.ceil(warmup * change.before) == math.ceil(warmup * change.after)


def _argument(stage: StagePlan, name: str) -> Any:
    """Return a training argument of a stage, or its default."""
    value = stage.spec.training.get(name, DEFAULTS[name])
    return getattr(value, "value", value)
