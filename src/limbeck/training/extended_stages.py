"""Stages that go on with another number of steps: whether they train as with that number from the start."""

import math
from collections.abc import Sequence
from typing import Any

from limbeck.core.records import StepsChange
from limbeck.methods.transforms import AnnealedScores
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.training_fields import DEFAULTS


def judge_changes(changes: Sequence[StepsChange], stages: Sequence[StagePlan]) -> list[StepsChange]:
    """Return the changes of stages that had begun, with the fields `schedule` and `as_from_start` set in place.

    Args:
        changes: The changes of the numbers of steps.
        stages: The stages of the plan to go on with; their titles are unique.
    """
    judged: list[StepsChange] = []
    for change in changes:
        # A stage that has taken no step begins with the new number.
        if change.step == 0:
            continue
        (stage,) = [stage for stage in stages if stage.spec.title == change.stage]
        change.schedule = str(_argument(stage, "lr_scheduler_type"))
        change.as_from_start = _trains_on_alike(stage, change)
        judged.append(change)
    return judged


def _trains_on_alike(stage: StagePlan, change: StepsChange) -> bool:
    """Whether the steps taken so far would have been the same with the new number of steps from the start.

    They would if neither the terms nor the learning rate depend on the number of all steps.
    """
    follows_progress = any(isinstance(term.transform, AnnealedScores) for term in stage.terms)
    if follows_progress:
        return False
    if change.schedule == "constant":
        return True
    # All other schedules change the rate over all steps, and `warmup_ratio` is a share of all steps.
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
