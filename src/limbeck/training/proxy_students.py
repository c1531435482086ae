"""The students of a proxy: made alike, read off a training, and finished as a run does."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from limbeck.methods.composition import Term
from limbeck.recipe.plan import RunPlan
from limbeck.training.cohort_trainer import CohortTrainer
from limbeck.training.students import LoadTeacher, finish_student, make_student


@dataclass(frozen=True)
class Trained:
    """A candidate after its training.

    Args:
        student: Trained in place, in float32 and evaluation mode, an ordinary model; worthless if it diverged.
        held_out: Held-out value of every term of its last stage, and `loss`, their weighted sum; empty without
            held-out text, or if it diverged.
        steps: Steps that it trained; fewer than the others if it was cut.
        diverged: Whether a term or a weight became infinite or no number.
    """

    student: PreTrainedModel
    held_out: dict[str, float]
    steps: int
    diverged: bool


@dataclass(frozen=True)
class Outcome:
    """What one stage made of one student."""

    held_out: dict[str, float]
    steps: int
    diverged: bool
    untrained: list[str]
    frozen: list[str]


def make_students(plans: Sequence[RunPlan], load_teacher: LoadTeacher) -> list[PreTrainedModel]:
    """Make the students; those of one choice are copies of one."""
    made: list[tuple[RunPlan, PreTrainedModel]] = []
    students = []
    for plan in plans:
        like = next((s for p, s in made if (p.student_choice, p.head) == (plan.student_choice, plan.head)), None)
        if like is None:
            head = plan.head
            from_teacher = head if head in {stage.teacher_head for stage in plan.own_stages} else None
            like, _ = make_student(plan.student_choice, head, from_teacher, load_teacher, plan.recipe.seed)
            made.append((plan, like))
        students.append(copy.deepcopy(like))
    return students


def read_outcomes(
    trainer: CohortTrainer, frozen: Sequence[list[str]], unreached: Sequence[list[str]], terms: Sequence[Sequence[Term]]
) -> list[Outcome]:
    """Measure the students on held-out rows, those that were cut too, and tell what became of each."""
    cohort = trainer.cohort
    everyone = range(len(cohort.members))
    trainer.diverged.check()
    broken = trainer.diverged.found | {i for i in everyone if not _is_finite(cohort.member(i).student)}
    cohort.active = [index for index in everyone if index not in broken]
    metrics = trainer.evaluate() if cohort.active and trainer.eval_dataset is not None else {}
    outcomes = []
    for index in everyone:
        values = {
            term.name: metrics[f"eval_{index}/{term.name}"]
            for term in terms[index]
            if f"eval_{index}/{term.name}" in metrics
        }
        if values:
            values["loss"] = sum(term.weight * values[term.name] for term in terms[index])
        left_out = [name for name in unreached[index] if name not in frozen[index]]
        outcomes.append(Outcome(values, trainer.steps[index], index in broken, left_out, frozen[index]))
    return outcomes


def finish(plan: RunPlan, student: PreTrainedModel, outcomes: Sequence[Outcome], load_teacher: LoadTeacher) -> Trained:
    """Settle what no stage trained, as a run does."""
    whole, _ = finish_student(
        plan.student_choice,
        student,
        [{"untrained": outcome.untrained, "frozen": outcome.frozen} for outcome in outcomes],
        [term for stage in plan.stages for term in stage.terms],
        load_teacher,
        teacher_width=plan.teacher.hidden,
        seed=plan.recipe.seed,
    )
    diverged = any(outcome.diverged for outcome in outcomes)
    held_out = {} if diverged else outcomes[-1].held_out
    return Trained(whole.eval(), held_out, sum(outcome.steps for outcome in outcomes), diverged)


def _is_finite(student: PreTrainedModel) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in student.parameters())
