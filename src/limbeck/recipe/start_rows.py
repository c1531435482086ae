"""The rows of a recipe that trains nothing: a student that starts with its teacher's head is scored on them."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    stage: StagePlan | None = None
    obstacle: str = ""


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
    assert corpus is not None
    assert corpus.task is not None
    kind = kind_of(corpus.task.kind)
    head = head_of(teacher.config)
    # Kinds without a head have None, as models without one do.
    if kind.head is None or head is None or kind_of(head).head != kind.head:
        return StartRows(), student
    if not _copies_head(student, teacher):
        return StartRows(obstacle="that head fits only a student that copies layers, as wide as the teacher's"), student

    method = {"name": "reranker", "loss": "margin_mse"} if kind.has_queries else {"name": "output_distribution"}
    spec = StageSpec.model_validate({"name": "start", "method": method, "training": {"max_steps": 1}})
    try:
        stage = plan_stage(0, recipe.model_copy(update={"stages": [spec]}), teacher, student, earlier=[])
        return StartRows(stage), with_outputs(student, [stage])
    except LimbeckError as error:
        return StartRows(obstacle=str(error)), student


def _copies_head(student: StudentPlan, teacher: TeacherInfo) -> bool:
    """Return whether a student copies what the teacher's head reads, in the same width."""
    start = student.spec.initialise
    copies_layers = student.source is teacher and start.checkpoint is None and start.layers != "random"
    return copies_layers and may_take_head(student.shape, teacher.shape, start.embeddings)
