"""Making a run's students: built, started from their teacher, and settled when training is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel

from limbeck.methods.composition import Term
from limbeck.models.blueprint import build_student
from limbeck.models.families import family_of
from limbeck.models.heads import Head, copy_head
from limbeck.models.initialise import initialise_student
from limbeck.models.loading import load_checkpoint
from limbeck.recipe.plan import StudentChoice
from limbeck.training.student_folder import add_pooler, fill_from_teacher, never_trained

LoadTeacher = Callable[..., PreTrainedModel]
"""Loads the whole teacher; keywords as in `load_model`."""


def make_student(
    choice: StudentChoice, head: Head | None, teacher_head: Head | None, load_teacher: LoadTeacher, seed: int
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Build a student and give it its start.

    Args:
        choice: The student.
        head: The head it gets.
        teacher_head: The head that its teacher is known to have, from which the student's starts where shapes allow.
        load_teacher: Loads the teacher that it is initialised from.
        seed: Decides what is random.

    Returns:
        The student, and what it started from for the record.
    """
    config = type(choice.config)(**choice.config.to_dict())
    if choice.spec.dropout is not None:
        for name in family_of(config).fields.dropouts:
            setattr(config, name, choice.spec.dropout)
    student = build_student(config, seed=seed, head=head)
    start = choice.spec.initialise
    if start.checkpoint is not None:
        load_checkpoint(student, start.checkpoint)
        return student, {"checkpoint": start.checkpoint}
    teacher = load_teacher(head=teacher_head)
    report = initialise_student(student, teacher, layers=start.layers, embeddings=start.embeddings, seed=seed)
    record = {"summary": report.summary(), **report.as_record()}
    if head is not None:
        copied = copy_head(student, teacher) if teacher_head == head and report.embeddings != "random" else []
        record["head"] = {"kind": head, "copied": copied}
    return student, record


def finish_student(
    choice: StudentChoice,
    student: PreTrainedModel,
    stages: Sequence[dict[str, Any]],
    terms: Sequence[Term],
    load_teacher: LoadTeacher,
    *,
    teacher_width: int,
    seed: int,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Settle what parameters hold that no stage trained, and say so.

    Args:
        choice: The student.
        student: The same, trained.
        stages: The records of the stages that trained it.
        terms: The terms of those stages.
        load_teacher: Loads the teacher.
        teacher_width: The teacher's hidden width.
        seed: Decides what is random.

    Returns:
        The student to save, and what is untrained in it for the record.
    """
    spec = choice.spec
    names, frozen = never_trained(stages)
    filled: list[str] = []
    if names and spec.untrained == "teacher":
        filled = fill_from_teacher(student, load_teacher(), names, terms)
    copies_pooler = spec.untrained == "teacher" or spec.initialise.layers != "random"
    teacher = load_teacher(pooler=True) if copies_pooler and choice.shape.hidden == teacher_width else None
    whole, pooler = add_pooler(student, teacher, seed)
    return whole, {
        "policy": spec.untrained,
        "names": [*names, *pooler],
        "from_teacher": [*filled, *(pooler if teacher is not None else [])],
        "frozen": frozen,
    }


def dropouts(choice: StudentChoice) -> dict[str, Any]:
    """Return the dropout rates that the saved student's configuration holds."""
    return {name: getattr(choice.config, name) for name in family_of(choice.config).fields.dropouts}
