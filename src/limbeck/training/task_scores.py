"""Scores of a run's student and its teacher on tasks, once the student is saved; both as they are, not fine-tuned.

A *task* has rows with labels in *splits*, such as `validation`, and a *head* is the part of a model that predicts such
labels. The tasks are those that the recipe names under `evaluation.tasks`. If it names none, the models are scored on
*development rows*: labelled rows of the last stage's own task that nothing is trained on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core import progress, records
from limbeck.core.devices import choose_device
from limbeck.corpus import LabelledSettings, Tokenizers
from limbeck.errors import LimbeckError
from limbeck.evaluation.development_scores import compare_outputs
from limbeck.evaluation.evaluators import head_match, head_outputs, prepared_task
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.kind import Outputs
from limbeck.kinds.task import TaskData
from limbeck.models.padding import set_padding
from limbeck.recipe.plan import SCORE_LATER, RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.development import prepare_rows, teaches_head
from limbeck.training.run_tokenizers import RunTokenizers


@dataclass(frozen=True)
class _ScoredTask:
    """A task to score both models on, whose rows are not loaded yet."""

    name: str
    load: Callable[[], TaskData]


def measure_tasks(
    plan: RunPlan,
    tokenizers: RunTokenizers,
    student: Path,
    load_teacher: Callable[..., PreTrainedModel],
    report: progress.Report = progress.no_progress,
    *,
    starts: Sequence[PreTrainedModel] = (),
) -> list[records.DevelopmentFigures]:
    """Score a run's student and its teacher: on `evaluation.tasks`, else on the last stage's development rows.

    Args:
        plan: The run's plan.
        tokenizers: Its tokenizers.
        student: Folder of the saved student.
        load_teacher: Loads the teacher of a stage, see `TeacherModels.load`.
        report: Receives the progress.
        starts: Untrained students with the head of the task, of which the best scores count.

    Returns:
        The figures of each split of each task. A task that cannot be scored has one entry, with the reason.
    """
    stage = last_stage_of_head(plan)
    if stage is None:
        # Without the head of a task the student has nothing to be scored by.
        return []
    tasks = _tasks_to_score(plan, stage)
    all_figures: list[records.DevelopmentFigures] = []
    for number, task in enumerate(tasks):
        report_task = progress.part_of(report, number / len(tasks), (number + 1) / len(tasks))
        try:
            figures_of_task = _score_on_task(
                task.load(), stage, tokenizers.of_stage(stage), student, load_teacher, report_task, starts
            )
        except LimbeckError as error:
            figures_of_task = [records.DevelopmentFigures(task=task.name, unavailable=str(error))]
        all_figures += [_with_facts(figures, plan, stage) for figures in figures_of_task]
    return all_figures


def _with_facts(figures: records.DevelopmentFigures, plan: RunPlan, stage: StagePlan) -> records.DevelopmentFigures:
    """Return figures with what a reader of the record knows the teacher and the rows by, and the length of the rows.

    Args:
        figures: The scores on a split, or the reason why there are none.
        plan: The run's plan.
        stage: The stage whose teacher was scored, and whose development rows they are if the recipe names no tasks.
    """
    fields: dict[str, Any] = {}
    if figures.unavailable is None:
        fields["length"] = _length_of_student(stage)
    # The rows may have chosen the step of the student: also where the recipe names a task, if it is the task of the
    # stage's development rows.
    development = stage.development
    is_of_stage = development is not None and figures.task == development.task.name
    if stage.chooses_step and is_of_stage:
        fields["chose_step"] = True
    if figures.teacher:
        fields["teacher_name"] = stage.teacher.title
    # Rows of a task that the recipe names are known by the task, development rows by their stage and their file.
    if plan.recipe.evaluation.tasks is None:
        fields["stage"] = stage.spec.title
        fields["split"] = "" if development is None else development.title
    return figures.model_copy(update=fields)


def last_stage_of_head(plan: RunPlan) -> StagePlan | None:
    """Return the last stage that teaches the head of the recipe's student for a task; None if no stage does.

    For a student that starts with its teacher's head and is not trained it is the stage that would teach it.
    """
    if plan.start_rows.stage is not None:
        return plan.start_rows.stage
    stages = [stage for stage in plan.own_stages if teaches_head(stage)]
    return stages[-1] if stages else None


def _tasks_to_score(plan: RunPlan, stage: StagePlan) -> list[_ScoredTask]:
    """Return the tasks that the recipe names, else the task of the stage where it has development rows."""
    names = plan.recipe.evaluation.tasks
    if names is not None:
        load = partial(load_task, data=plan.tasks_folder, training=False)
        return [_ScoredTask(name, partial(load, name)) for name in names]
    rows = stage.development
    if rows is None:
        return []
    return [_ScoredTask(rows.task.name, rows.load)]


def _score_on_task(
    data: TaskData,
    stage: StagePlan,
    tokenizers: Tokenizers,
    student: Path,
    load_teacher: Callable[..., PreTrainedModel],
    report: progress.Report,
    starts: Sequence[PreTrainedModel],
) -> list[records.DevelopmentFigures]:
    """Score the student, and the teacher if it has the task's head, on every scored split of a task.

    Args:
        data: The task's rows.
        stage: The stage that taught the student's head.
        tokenizers: Those of the two models.
        student: Folder of the saved student.
        load_teacher: Loads the teacher.
        report: Receives the progress.
        starts: Untrained students; without any they are left out.
    """
    # Only labelled rows teach the head of a task.
    assert isinstance(stage.corpus, LabelledSettings)
    tokenizer = tokenizers.student
    student_length = _length_of_student(stage)
    prepared = prepare_rows(data, stage.corpus, tokenizer, length=student_length)
    # The stage reads the head of its teacher if the teacher has one for this task. Stored outputs have no weights.
    has_teacher = stage.teacher_head is not None and stage.teacher.is_one_model
    # Each model takes an equal part of the progress.
    count = 1 + int(has_teacher) + len(starts)
    reports = [progress.part_of(report, part / count, (part + 1) / count) for part in range(count)]

    student_outputs = _outputs_by_split(
        "the student",
        head_outputs.load_head(str(student), data.task, tokenizer, student_length),
        prepared,
        tokenizer,
        renamed_classes={},
        report=reports.pop(0),
    )
    outputs_of_starts: list[dict[str, Outputs]] = []
    for start in starts:
        set_padding(start, tokenizer)
        outputs_of_start = _outputs_by_split(
            "the start",
            start.to(choose_device("auto")),
            prepared,
            tokenizer,
            renamed_classes={},
            report=reports.pop(0),
        )
        outputs_of_starts.append(outputs_of_start)
    teacher_outputs: dict[str, Outputs] = {}
    if has_teacher:
        rows_of_teacher = prepared
        if tokenizers.teacher is not None:
            rows_of_teacher = prepare_rows(data, stage.corpus, tokenizers.teacher, length=stage.corpus.length)
        teacher_outputs = _outputs_by_split(
            stage.teacher.title,
            load_teacher(stage.teacher, head=stage.teacher_head).to(choose_device("auto")),
            rows_of_teacher,
            tokenizers.teacher or tokenizer,
            renamed_classes=stage.teacher.spec.classes or {},
            report=reports.pop(0),
        )

    return [
        compare_outputs(
            prepared,
            split,
            student=outputs,
            teacher=teacher_outputs.get(split),
            starts=[outputs_of_start[split] for outputs_of_start in outputs_of_starts],
        )
        for split, outputs in student_outputs.items()
    ]


def _length_of_student(stage: StagePlan) -> int:
    """Return the most tokens of a row that the student of a stage reads, which may be fewer than its teacher reads."""
    assert isinstance(stage.corpus, LabelledSettings)
    return stage.corpus.student_length or stage.corpus.length


def _outputs_by_split(
    name: str,
    model: PreTrainedModel,
    prepared: prepared_task.PreparedTask,
    tokenizer: PreTrainedTokenizerBase,
    *,
    renamed_classes: dict[str, str],
    report: progress.Report,
) -> dict[str, Outputs]:
    """Run a model over every scored split of a task, and return its outputs by split.

    Args:
        name: The model's name, for messages.
        model: The model, with the task's head.
        prepared: The task.
        tokenizer: The tokenizer of the rows.
        renamed_classes: For each name of a class of the model, the name that the task has for it.
        report: Receives the progress.
    """
    task = prepared.task
    match = head_match.match_head(name, model.config, task, renamed_classes, way_out=SCORE_LATER)
    outputs: dict[str, Outputs] = {}
    for number, split in enumerate(task.scored):
        report_split = progress.part_of(report, number / len(task.scored), (number + 1) / len(task.scored))
        outputs[split] = head_outputs.read_outputs(
            model, tokenizer, prepared, split, classes=match.classes, report=report_split
        )
    return outputs
