"""The record of several teachers: who they were, and what each of them taught."""

from __future__ import annotations

from limbeck.core import records
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.several_teachers import members_read
from limbeck.training.resuming import hash_of_teacher


def describe_teachers(plan: RunPlan) -> list[records.RunTeacher]:
    """Describe each of several teachers for the run's record; a run of one teacher has none.

    Args:
        plan: The plan of the run.
    """
    combination = plan.teacher_info.combination
    if combination is None:
        return []
    total = sum(combination.weights)
    described = []
    for member in combination.members:
        taught: dict[str, list[str]] = {}
        for stage in plan.stages:
            for name, streams in members_read(stage):
                if name == member.name:
                    taught[stage.spec.title] = streams
        described.append(
            records.RunTeacher(
                name=member.name,
                title=member.teacher.title,
                weight=member.weight / total,
                weights=hash_of_teacher(member.teacher, None),
                taught=taught,
            )
        )
    return described
