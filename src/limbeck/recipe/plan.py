"""Planning a run: its recipe is checked against the configurations of its models, before any weight is loaded.

A `RunPlan` (`limbeck.recipe.run_plan`) has a `StagePlan` (`limbeck.recipe.stage_plan`) for each stage of the recipe.
A stage trains the recipe's student further, or makes a student of its own, which later stages may use as their
teacher. So `stage.student` is None where a stage trains the recipe's student, and `stage.teacher.stage` names the
earlier stage whose student is the teacher, or is None where the teacher is a model with files.
"""

from __future__ import annotations

from dataclasses import replace

from limbeck.core.kinds import KINDS
from limbeck.corpus.settings import LabelledSettings
from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.tasks.loading import check_scored
from limbeck.evaluation.tasks.registry import find_task
from limbeck.models.heads import model_class
from limbeck.models.trial_run import check_runs
from limbeck.recipe.facts import check_facts
from limbeck.recipe.labelled_rows import check_rows
from limbeck.recipe.mistakes import at_place
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, plan_student
from limbeck.recipe.run_plan import RunPlan
from limbeck.recipe.schema import Recipe
from limbeck.recipe.several_teachers import check_all_read, plan_recipe_teacher
from limbeck.recipe.stage_classes import with_class_names, with_class_weights
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_planning import plan_stage
from limbeck.recipe.stage_splits import check_splits
from limbeck.recipe.start_rows import plan_start_rows
from limbeck.recipe.student_head import with_outputs

__all__ = ["SCORE_LATER", "RunPlan", "plan_checked", "plan_run"]

SCORE_LATER = "score it with `limbeck evaluate --as-is --classes`, which names them"
"""Advice that ends an error about classes whose names differ from those of a task."""


def plan_run(recipe: Recipe) -> RunPlan:
    """Check everything that can be checked without weights, and run the models on PyTorch's meta device.

    First come the facts of the recipe alone (`limbeck.recipe.facts`), then those of its models: layers in range, heads
    that divide widths, teachers that have the head whose scores are taught, lengths within positions, terms that couple
    samples without accumulation, tokenizers that agree.

    Args:
        recipe: The recipe.

    Returns:
        What the run will do.

    Raises:
        LimbeckError: one line for the mistakes of the recipe alone, or for the first contradiction.
    """
    check_facts(recipe)
    return plan_checked(recipe)


def plan_checked(recipe: Recipe) -> RunPlan:
    """Plan a run as `plan_run`, without checking the facts of the recipe again.

    Args:
        recipe: A recipe that `load_checked` has loaded.

    Raises:
        LimbeckError: one line for the first contradiction.
    """
    teacher = plan_recipe_teacher(recipe)
    student = plan_student(recipe.student, teacher)
    stages = _plan_stages(recipe, teacher, student)
    check_all_read(stages, teacher)

    # The stages that train a head of the recipe's student. A stage may have a student of its own, an assistant.
    head_stages = []
    for stage in stages:
        trains_assistant = stage.student is not None
        if stage.student_head is not None and not trains_assistant:
            head_stages.append(stage)
    # The head of a task is trained on labelled rows. Another head, of a masked language model, is trained on text.
    task_stages = [stage for stage in head_stages if stage.pairing.has_labels]
    if recipe.evaluation.tasks and not task_stages:
        raise RecipeError(
            "evaluation.tasks scores the student's head as it is, but no stage trains a head for a task; leave "
            "evaluation.tasks out (`limbeck evaluate` can fine-tune the student first), or give a stage a corpus "
            "with a task."
        )

    # All stages together decide the outputs of the student's head. The models are checked with this head.
    student_with_head = with_outputs(student, head_stages)
    for stage in stages:
        _check_models_run(stage, student_with_head)
    if teacher.sentence is not None and teacher.is_known_model:
        teacher.sentence.check_fits(recipe.teacher.model, teacher.shape.hidden)

    # A recipe without stages may give the student the teacher's head, for its labelled rows.
    start_rows, student_to_train = plan_start_rows(recipe, teacher, student_with_head)
    plan = RunPlan(recipe, teacher, student_to_train, stages, start_rows)
    if recipe.evaluation.tasks:
        _check_scored_tasks(plan, last_stage=task_stages[-1])
    return plan


def _plan_stages(recipe: Recipe, teacher: TeacherInfo, student: StudentPlan) -> list[StagePlan]:
    """Plan the stages in their order, then settle what depends on several of them: names and weights of classes."""
    stages: list[StagePlan] = []
    for index in range(len(recipe.stages)):
        stages.append(plan_stage(index, recipe, teacher, student, earlier=stages))
    check_splits(stages)
    stages = with_class_names(stages)
    stages = with_class_weights(stages, recipe)
    return [_with_absent_classes(index, stage) for index, stage in enumerate(stages)]


def _with_absent_classes(index: int, stage: StagePlan) -> StagePlan:
    """Read the first labelled rows of a stage: refuse rows that teach nothing, and note classes without a row.

    Args:
        index: The position of the stage in the recipe, from 0, for messages.
        stage: The stage.

    Returns:
        The stage, whose `absent` are the classes that no row has.
    """
    if not isinstance(stage.corpus, LabelledSettings):
        return stage
    place = f"stages.{index}.corpus" if stage.spec.corpus else "corpus"
    # The first rows may show for certain that all rows are alike, or that each query has a single document.
    first_rows = check_rows(stage.corpus, place, classes=stage.learns_classes, queries=stage.compares_documents)
    if first_rows.counts_of_alike is not None:
        raise stage.one_class_error(first_rows.counts_of_alike)
    if first_rows.have_single_documents:
        raise stage.single_documents_error()
    return replace(stage, absent=first_rows.absent)


def _check_models_run(stage: StagePlan, student: StudentPlan) -> None:
    """Run the models of a stage on PyTorch's meta device, without weights.

    Args:
        stage: The stage.
        student: The recipe's student, which a stage without a student of its own trains.
    """
    # A teacher that is the student of an earlier stage has run as the learner of that stage.
    teacher_is_earlier_student = stage.teacher.stage is not None
    if not teacher_is_earlier_student:
        for member in stage.teacher.members:
            if member.is_known_model:
                check_runs(member.title, member.config, stage.teacher_head)
    learner = stage.student or student
    check_runs(f"the student {learner.shape}", learner.config, stage.student_head)


def _check_scored_tasks(plan: RunPlan, last_stage: StagePlan) -> None:
    """Refuse `evaluation.tasks` that a run could not score at its end: tasks without rows, or with another head.

    The run scores its student on these tasks, and beside it the teacher of the last stage where that has a head.

    Args:
        plan: The run.
        last_stage: The last stage that trains the head of its student on labelled rows.
    """
    # A copy of the student's configuration, with the architecture that its saved folder will name: the class decides
    # which head is matched with the task.
    saved_config = type(plan.student_config)(**plan.student_config.to_dict())
    saved_config.architectures = [model_class(saved_config, last_stage.student_head).__name__]
    # The run also scores a teacher with a head. The student of an earlier stage needs no check as a teacher, since the
    # run itself makes its head, and neither does one of which only the outputs are known.
    teacher = last_stage.teacher
    has_files = teacher.is_known_model and teacher.stage is None
    teacher_is_checked = last_stage.teacher_head is not None and has_files

    for name in plan.recipe.evaluation.tasks or ():
        with at_place("evaluation.tasks"):
            task = find_task(name).task
            if KINDS[task.kind].head is None:
                raise RecipeError(
                    f"{task.title} compares sentence vectors, but evaluation.tasks of a recipe scores heads; leave "
                    "this task out."
                )
            match_head("the student", saved_config, task, way_out=SCORE_LATER)
            if teacher_is_checked:
                match_head(teacher.title, teacher.config, task, way_out=SCORE_LATER)
            check_scored(name, data=plan.tasks_folder)
