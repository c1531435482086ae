"""The rows of a recipe that trains nothing.

A student that starts with its teacher's head is scored on them, and a start that is fitted to its teacher reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from limbeck.core.kinds import kind_of
from limbeck.errors import LimbeckError
from limbeck.models.heads import head_of
from limbeck.models.start_head import may_take_head
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_planning import plan_stage
from limbeck.recipe.stages import StageSpec
from limbeck.recipe.student_head import with_outputs


@dataclass(frozen=True)
class StartRows:
    """The labelled rows of a recipe without stages, and what they are read for.

    Args:
        stage: A stage that would teach the student the teacher's scores of these rows. It is never trained: its head
            and its rows are those that the student is scored by. None where the student gets no head.
        obstacle: The reason why the student cannot start with the head of its teacher; empty where it can, and where
            neither rows nor teacher have one.
        reading: A stage by which a start reads the rows, which is never trained either: `stage`, or one that needs no
            head. None where no start reads rows.
    """

    stage: StagePlan | None = None
    obstacle: str = ""
    reading: StagePlan | None = None


def plan_start_rows(recipe: Recipe, teacher: TeacherInfo, student: StudentPlan) -> tuple[StartRows, StudentPlan]:
    """Plan the rows of a recipe without stages.

    Args:
        recipe: The recipe.
        teacher: Its teacher.
        student: Its student.

    Returns:
        The rows, and the student with the outputs of the teacher's head where it gets that.
    """
    corpus = recipe.corpus
    has_rows = corpus is not None and corpus.task is not None
    if recipe.stages or not has_rows or not teacher.is_known_model:
        return StartRows(), student
    rows, student = _plan_head(recipe, teacher, student)
    if rows.stage is not None:
        return replace(rows, reading=rows.stage), student
    if not _is_fitted(student):
        return rows, student
    # This method needs no head, and reads the rows of every kind of task.
    reading = _plan_stage({"name": "hidden_states"}, recipe, teacher, student)
    return replace(rows, reading=reading), student


def _plan_head(recipe: Recipe, teacher: TeacherInfo, student: StudentPlan) -> tuple[StartRows, StudentPlan]:
    """Plan the head that a student takes over, for labelled rows; the arguments are those of `plan_start_rows`."""
    assert recipe.corpus is not None
    assert recipe.corpus.task is not None
    kind = kind_of(recipe.corpus.task.kind)
    head = head_of(teacher.config)
    # Kinds without a head have None, as models without one do.
    if kind.head is None or head is None or kind_of(head).head != kind.head:
        return StartRows(), student
    if not _copies_head(student, teacher):
        return StartRows(obstacle="that head fits only a student that copies layers, as wide as the teacher's"), student

    method = {"name": "reranker", "loss": "margin_mse"} if kind.has_queries else {"name": "output_distribution"}
    try:
        stage = _plan_stage(method, recipe, teacher, student)
        return StartRows(stage), with_outputs(student, [stage])
    except LimbeckError as error:
        return StartRows(obstacle=str(error)), student


def _plan_stage(method: Mapping[str, str], recipe: Recipe, teacher: TeacherInfo, student: StudentPlan) -> StagePlan:
    """Plan a stage on the recipe's rows that is never trained."""
    spec = StageSpec.model_validate({"name": "start", "method": method, "training": {"max_steps": 1}})
    return plan_stage(0, recipe.model_copy(update={"stages": [spec]}), teacher, student, earlier=[])


def _is_fitted(student: StudentPlan) -> bool:
    """Whether a student's start is fitted to its teacher."""
    start = student.spec.initialise
    return start.fit is not None or "fit" in (start.steps or {})


def _copies_head(student: StudentPlan, teacher: TeacherInfo) -> bool:
    """Return whether a student copies what the teacher's head reads, in the same width."""
    start = student.spec.initialise
    copies_layers = student.source is teacher and start.checkpoint is None and start.layers != "random"
    return copies_layers and may_take_head(student.shape, teacher.shape, start.embeddings)
