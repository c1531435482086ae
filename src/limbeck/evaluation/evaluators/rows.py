"""The rows of a task as limbeck's own evaluators plan them: read, checked and hashed; no tokens are made.

Settings, epochs and thresholds are *chosen* by scores on a *select split*. Some tasks have only a test split beside the
rows to train on; then part of the rows to train on is held out, so that nothing is chosen on the test split.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from limbeck.core.devices import bf16_is_fast, has_accelerator
from limbeck.corpus.rows.classes import balance, count_classes
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.evaluators.evaluator import EvaluatedTask
from limbeck.evaluation.evaluators.prepared_task import select_split
from limbeck.evaluation.plan.identity import data_fingerprint, training_set_fingerprint
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import TrainingPoint, training_points
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.evaluation.tasks.held_out_rows import hold_out_rows
from limbeck.evaluation.tasks.loading import load_task
from limbeck.evaluation.tasks.registry import TASKS, find_task
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Task, TaskData


@lru_cache(maxsize=1)  # The rows of only one task are in memory.
def load_rows(name: str, data: Path | None, *, training: bool) -> TaskData:
    """Return the rows of a task, see `load_task`.

    Args:
        name: The task, as the user named it.
        data: Folder with the tasks' files; None for the Hub.
        training: Whether the rows to train and to select on are needed too.
    """
    return load_task(name, data=data, training=training)


def plan_task(name: str, evaluator: str, request: EvaluationRequest, *, training: bool) -> EvaluatedTask:
    """Read the rows of a task, and plan its evaluation.

    Args:
        name: The task, as the user named it.
        evaluator: Name of its evaluator.
        request: The request.
        training: Whether models are fine-tuned.

    Raises:
        CorpusError: if its rows are not there or cannot be read, or it has nothing to score and nothing to predict.
        RecipeError: for settings that cannot be.
    """
    data = rows_of(name, request, training=training)
    settings = request.settings(data.task)
    notes = list(data.notes)
    if training:
        notes += _notes_on_classes(data, settings)
    return EvaluatedTask(
        name=name,
        evaluator=evaluator,
        task=data.task,
        settings=settings,
        data=data_fingerprint(data),
        training_set=training_set_fingerprint(data),
        notes=tuple(dict.fromkeys(notes)),
    )


def rows_of(name: str, request: EvaluationRequest, *, training: bool) -> TaskData:
    """Return the rows of a task; where something is chosen and no rows are there for it, some are held out for that.

    The arguments and errors are those of `plan_task`.
    """
    data = load_rows(name, request.data, training=training)
    task = data.task
    if not (task.scored or task.predicted):
        raise CorpusError(
            f"{task.title} has no split to score or to predict: name a split in the task's files, or give a folder "
            "that has one as --data."
        )
    settings = request.settings(task)
    if settings.metric not in (None, *task.metrics):
        raise RecipeError(_unknown_metric(task, str(settings.metric)))
    if not training:
        return data

    points = grid_of(task, settings)
    runs = len(points) * len(seeds_of(settings, request))
    # The split that settings would be chosen on, which may be another than the description says: its files are missing.
    select = select_split(task, data.splits)
    _check_can_choose(task, select, request, runs)
    has_train_rows = bool(data.splits.get(TRAIN))
    has_development_rows = select is not None and find_task(name).may_choose_on(select)
    needs_development_rows = _is_something_chosen(settings, request, points, runs)
    if has_train_rows and needs_development_rows and not has_development_rows:
        return hold_out_rows(data)
    return data


def settings_for_models(task: EvaluatedTask, models: Sequence[PlannedModel], request: EvaluationRequest) -> FineTuning:
    """Return the settings of a task, with a length that all models can read, as in a distillation.

    A length that the user or a preset names stays as it is: a model that cannot read it is refused.

    Args:
        task: The task.
        models: All models of the evaluation.
        request: The request.
    """
    if request.length_of_kind(task.task) is None:
        return task.settings
    length = task.settings.length
    for model in models:
        if model.shape.positions:
            length = min(length, model.shape.positions)
    return task.settings.model_copy(update={"length": length})


def _unknown_metric(task: Task, metric: str) -> str:
    """Return the refusal of a metric that does not score a task, with the ways out."""
    names = ", ".join(task.metrics)
    problem = f"{task.title} is not scored by '{metric}'; set {task.name}.metric to one of {names} by --set"
    if task.name in TASKS:
        return f"{problem}."
    if metric in KINDS[task.kind].facts.metrics_of_class:
        return f"{problem}, or name {metric} as metric and its class as positive in the task's file."
    return f"{problem}, or name it as metric in the task's file."


def seeds_of(settings: FineTuning, request: EvaluationRequest) -> list[int]:
    """Return the seeds of a task's runs, from 1 upwards."""
    count = request.seeds or settings.seeds
    return list(range(1, count + 1))


def grid_of(task: Task, settings: FineTuning) -> list[TrainingPoint]:
    """Return the grid points of a fine-tuning on this machine."""
    return training_points(task, settings, bf16=has_accelerator() and bf16_is_fast())


def _check_can_choose(task: Task, select: str | None, request: EvaluationRequest, runs: int) -> None:
    """Refuse to keep the best of several runs if no rows are labelled.

    Args:
        task: The task.
        select: The split that the best is chosen on; None if there are no labelled rows.
        request: The request.
        runs: Number of all runs.

    Raises:
        CorpusError: in that case.
    """
    keeps_best_of_several = request.keep_weights == "best" and runs > 1
    if keeps_best_of_several and select is None:
        raise CorpusError(
            f"{task.title} has no labelled rows by which to choose the best of {runs} runs; give a folder with its "
            "development rows as --data, or train only one run: a single value of each setting and --seeds 1."
        )


def _is_something_chosen(
    settings: FineTuning, request: EvaluationRequest, points: Sequence[TrainingPoint], runs: int
) -> bool:
    """Whether scores choose one of several runs, the grid point, the epoch, or thresholds of classes.

    Args:
        settings: The settings of the task.
        request: The request.
        points: The grid points. Epoch and thresholds are chosen at all of them or at none.
        runs: Number of all runs, of every grid point with every seed.
    """
    chooses_run = runs > 1 and "best" in (settings.pick, request.keep_weights)
    chooses_point = len(points) > 1
    chooses_epoch = points[0].best_epoch_by is not None
    return chooses_run or chooses_point or chooses_epoch or points[0].choose_thresholds


def _notes_on_classes(data: TaskData, settings: FineTuning) -> list[str]:
    """Return notes on uneven classes of the rows to train on, and on chosen thresholds that no score uses.

    Raises:
        CorpusError: if all rows have the same class, or a class that is to be balanced has no rows.
    """
    task = data.task
    facts = KINDS[task.kind].facts
    rows = data.splits.get(TRAIN, ())
    rows_have_classes = facts.label in ("class", "classes")
    if not rows or not rows_have_classes:
        return []

    # All grid points have the same weights of classes and the same choice of thresholds.
    point = grid_of(task, settings)[0]
    counts = count_classes(np.array([row.label for row in rows]), task.labels, facts)
    if counts.has_one:
        raise CorpusError(f"{task.title} {task.train}: {counts.describe_one()}; add rows of other classes.")
    if point.class_weights is not None:
        # Weights that cannot be are refused here, before any work.
        balance(point.class_weights, counts)

    notes = []
    rare_classes = counts.describe_rare()
    if rare_classes is not None:
        # The sentence goes on after a colon.
        in_sentence = rare_classes[0].lower() + rare_classes[1:]
        notes.append(f"{task.title} {task.train}: {in_sentence}")
    select = select_split(task, data.splits)
    scores_other_splits = any(split != select for split in task.scored)
    if point.choose_thresholds and not scores_other_splits:
        where = ""
        if task.predicted:
            where = " in the figures; leaderboard files have the chosen ones"
        notes.append(
            f"{task.title}: thresholds stay 0.5{where}, since {select}, on which they are chosen, is all that is scored"
        )
    return notes
