"""A copy of a student in training that can be measured like any model."""

from __future__ import annotations

from transformers import PreTrainedModel

from limbeck.models.blueprint import build_student
from limbeck.recipe.plan import RunPlan


def plain_copy(student: PreTrainedModel, plan: RunPlan) -> PreTrainedModel:
    """Return a student's weights in a model without taps, in evaluation mode on the same device.

    A tapped model stops at the deepest stream that its method reads, and a second tap would take the first one off.

    Args:
        student: In training; left as it is.
        plan: Of its run.
    """
    copy = build_student(plan.student_config, seed=0, head=plan.head)
    copy.load_state_dict(student.state_dict())
    return copy.to(student.device).eval()
