"""The records of a run's teachers: where each is from, and of several what each of them taught."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from limbeck.core import records
from limbeck.models.card_facts import teacher_facts
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.several_teachers import members_read
from limbeck.targets.facts import EndpointFacts
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
        # By the title of each stage that reads this teacher, the names of the outputs that it reads.
        taught: dict[str, list[str]] = {}
        for stage in plan.stages:
            for name, streams in members_read(stage):
                if name == member.name:
                    taught[stage.spec.title] = streams
        record = records.RunTeacher(
            name=member.name,
            title=member.teacher.title,
            weight=member.weight / total,
            weights=hash_of_teacher(member.teacher, before=None),
            taught=taught,
        )
        if member.teacher.endpoint is not None:
            record.endpoint = _describe_endpoint(member.teacher.endpoint)
        described.append(record)
    return described


def describe_source(teacher: TeacherInfo) -> dict[str, Any]:
    """Return the fields of a teacher's record that say where it is from; none for outputs of unknown origin."""
    if teacher.is_known_model:
        return teacher_facts(teacher.spec.model, teacher.spec.name)
    if teacher.endpoint is None:
        return {}
    return {"endpoint": _describe_endpoint(teacher.endpoint).to_dict()}


def _describe_endpoint(endpoint: EndpointFacts) -> records.Endpoint:
    """Describe the server that a teacher's vectors came from, without what the user did not say of it."""
    return records.Endpoint.read({name: value for name, value in asdict(endpoint).items() if value})
