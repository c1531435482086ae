"""The places that a comparison's plan names: models, text, tasks and their files, checked before torch is imported."""

from collections.abc import Sequence
from pathlib import Path

from limbeck.comparison.folder import COMPARISON
from limbeck.comparison.plan import ComparisonPlan
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.recipe.facts import check_corpus, check_student, check_teacher

_EVALUATION = "evaluation"
"""Folder of the evaluation in that of the comparison."""
_HUB = "hub"
"""Value of `evaluation.data` that stands for the Hub rather than a folder with the tasks' files."""


def check_places(plan: ComparisonPlan, output: Path | None) -> None:
    """Refuse a plan whose models, text, tasks or files are nowhere, and a folder that holds something else.

    Args:
        plan: The plan.
        output: The comparison's folder; None where nothing is run.

    Raises:
        LimbeckError: one line for the first mistake.
    """
    check_teacher(plan.teacher)
    for student in plan.students:
        check_student(student)
    check_corpus(plan.corpus)
    if plan.evaluation.tasks:
        # Tasks are checked without models, and nothing is written to the folder.
        request = request_evaluation(plan.evaluation, Path(), teacher=None, students=[])
        request.check_tasks()
    if output is not None:
        # Raises for a folder that holds something else.
        COMPARISON.look(output.expanduser())


def request_evaluation(
    spec: MeasuresSpec, folder: Path, *, teacher: str | None, students: Sequence[Path]
) -> EvaluationRequest:
    """Return the request for `limbeck evaluate`.

    Args:
        spec: The options of the plan.
        folder: The folder of the comparison.
        teacher: The teacher; None if it is not evaluated.
        students: The folders of the students.
    """
    data = None
    if spec.data is not None and spec.data.lower() != _HUB:
        data = Path(spec.data).expanduser()
    return EvaluationRequest(
        models=tuple(map(str, students)),
        tasks=",".join(spec.tasks),
        output=folder / _EVALUATION,
        data=data,
        preset=spec.preset,
        seeds=spec.seeds,
        teacher=teacher,
        workers=spec.workers,
        overrides=spec.overrides,
    )
