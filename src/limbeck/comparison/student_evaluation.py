"""The evaluation of students on tasks, by `limbeck evaluate` in the folder of a comparison or a search."""

from collections.abc import Sequence
from pathlib import Path

from limbeck.comparison.places import request_evaluation
from limbeck.core.progress import Report
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.evaluation.plan.planner import PlannedTask, Planner
from limbeck.evaluation.run.evaluation import EvaluationOutcome, run_evaluation


def check_tasks(spec: MeasuresSpec, *, read: bool) -> list[PlannedTask]:
    """Check tasks and settings, before hours go into students that could not be evaluated.

    Args:
        spec: The options of the plan.
        read: Whether rows are read from the Hub too, which may download them; rows in a folder are read in any case.

    Returns:
        The tasks whose rows were read, groups expanded; an empty list where no rows were read.

    Raises:
        RecipeError: for an unknown task or setting.
        CorpusError: for a task whose rows are not there, or cannot be read.
    """
    if not spec.tasks:
        return []
    # Tasks are checked without models, and nothing is written to the folder.
    request = request_evaluation(spec, Path(), teacher=None, students=[])
    request.check_tasks()
    planner = Planner(request)
    are_on_hub = request.data is None
    if are_on_hub and not read:
        return []
    # Planning a task reads its rows.
    return [planner.plan(name) for name in planner.names]


def evaluate_students(
    spec: MeasuresSpec, folder: Path, *, teacher: str | None, students: Sequence[Path], report: Report
) -> EvaluationOutcome:
    """Evaluate students on the plan's tasks; what is finished in the folder is not run again.

    Args:
        spec: The options of the plan; it has one or more tasks.
        folder: The folder of the comparison.
        teacher: The teacher, which is evaluated too if the plan says so; None where it has no weights.
        students: The folders of the students, one or more.
        report: Receives the progress.
    """
    compared_teacher = teacher if spec.teacher else None
    request = request_evaluation(spec, folder, teacher=compared_teacher, students=students)
    return run_evaluation(request, report)
