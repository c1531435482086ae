"""The evaluator of fine-tunings: each model is trained on a task's rows and scored on others, at every grid point."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from limbeck.core import paths
from limbeck.errors import ModelError
from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.evaluators.evaluator import (
    FINE_TUNED,
    CellResult,
    EvaluatedTask,
    Evaluator,
    PlannedCells,
    ReadyCell,
    Share,
    register_as_evaluator,
)
from limbeck.evaluation.evaluators.fine_tuning import (
    BestEpoch,
    FineTuner,
    load_task_model,
    training_arguments,
)
from limbeck.evaluation.evaluators.rows import grid_of, plan_task, rows_of, seeds_of
from limbeck.evaluation.evaluators.tokens import PreparedTask, TokenKeys, prepare, select_split
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import TrainingPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.kinds.scoring import intervals_of, only_answer, score
from limbeck.kinds.task import Predictions, Task
from limbeck.kinds.thresholds import choose_thresholds
from limbeck.models.tokenizers import load_tokenizer


@register_as_evaluator()
class FineTuned(Evaluator):
    """Fine-tunes models on the rows of tasks; cells with the same training share it."""

    name = FINE_TUNED

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a router: its two models read queries and documents."""
        check_one_model(task, model)

    def task(self, name: str, request: EvaluationRequest) -> EvaluatedTask:
        """Return a task with its rows to train on, hashed."""
        return plan_task(name, self.name, request, training=True)

    def cells(
        self, task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
    ) -> PlannedCells:
        """Return a cell for every grid point and seed, seeds innermost."""
        cells = []
        for point in grid_of(task.task, task.settings):
            cells += [Cell(model.name, task.name, point, seed) for seed in seeds_of(task.settings, request)]
        return PlannedCells(cells)

    def prepare(self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest) -> PreparedTask:
        """Return the tokens of the rows to train on and of those that are scored."""
        tokenizer: Any = load_tokenizer(model.queries)
        head_outputs.check_padding(model.name, tokenizer)
        point = training_point(cell)
        return prepare(
            rows_of(task.name, request, training=True),
            tokenizer,
            keys=TokenKeys(model.tokenizer, task.data, task.training_set),
            cache_dir=paths.default_cache_dir(),
            length=point.length,
            stride=point.stride,
            max_scored_rows=point.max_scored_rows,
            max_train_rows=point.max_train_rows,
            training=True,
        )

    def train(self, cells: Sequence[ReadyCell], report: Share) -> "Trained":
        """Return the one training of the cells."""
        return train_once(cells, report)

    def run(self, ready: ReadyCell, trained: "Trained", report: Share) -> CellResult:
        """Score the cell by the weights that its settings keep."""
        return trained.score(ready)


def check_one_model(task: Task, model: PlannedModel) -> None:
    """Refuse a router for a task without queries.

    Raises:
        ModelError: naming its two models.
    """
    if model.queries != model.documents:
        raise ModelError(
            f"'{model.name}' sends queries and documents to different models, but {task.title} has "
            f"neither; give one of the two: '{model.queries}' or '{model.documents}'."
        )


def training_point(cell: Cell) -> TrainingPoint:
    """Return the settings of a fine-tuning's cell."""
    assert isinstance(cell.point, TrainingPoint)
    return cell.point


@dataclass(frozen=True)
class Trained:
    """A finished training, by which its cells are scored.

    Attributes:
        tuner: Holds the fine-tuned model.
        best_epochs: Of the cells that keep the weights of an epoch.
        seconds: For the training.
    """

    tuner: FineTuner
    best_epochs: Mapping[Cell, BestEpoch]
    seconds: float

    def score(self, ready: ReadyCell) -> CellResult:
        """Score one of the cells, by the weights that its settings keep.

        Args:
            ready: The cell with its tokens.

        Raises:
            LimbeckError: one clear line: a weight that is not finite, a device that is out of memory.
        """
        started = time.monotonic()
        best = self.best_epochs.get(ready.cell)
        prepared: PreparedTask = ready.prepared
        with head_outputs.quiet_and_explain_oom():
            result = self._score(ready.cell, prepared, best)
        seconds = self.seconds + time.monotonic() - started
        scored_rows = {split: len(prepared.rows[split]) for split in result.scores}
        result = replace(
            result,
            epoch=None if best is None else best.epoch,
            rows={"train": prepared.train_rows, **scored_rows},
            seconds=round(seconds, 3),
            training_seconds=round(self.seconds, 3),
        )
        if ready.keep is not None:
            result = replace(result, weights=ready.keep(self.tuner.model, self.tuner.tokenizer))
        return result

    def _score(self, cell: Cell, prepared: PreparedTask, best: BestEpoch | None) -> CellResult:
        self.tuner.settle(best)
        task = prepared.task
        select = select_split(prepared)
        splits = list(dict.fromkeys([*task.scored, *([select] if select is not None else [])]))
        predictions = {split: self.tuner.predict(prepared, split) for split in splits}

        # Thresholds are never used on the rows that they were chosen on.
        thresholds: tuple[float, ...] = task.thresholds
        if training_point(cell).choose_thresholds and select is not None:
            thresholds = choose_thresholds(cast(Any, predictions[select]), prepared.rows[select])
        decided = replace(task, thresholds=thresholds)
        tasks = {split: task if split == select else decided for split in splits}

        result = score_splits(tasks, prepared, predictions)
        unlabelled = {split: self.tuner.predict(prepared, split) for split in task.predicted if split in prepared.rows}
        return replace(result, predictions=unlabelled, thresholds=list(thresholds) or None)


def train_once(cells: Sequence[ReadyCell], report: Share) -> Trained:
    """Fine-tune a model once, for all cells that it is then scored for.

    Args:
        cells: At least one; all of the same training, see `training_identity`. They differ in the scored
            rows and in the epoch they keep.
        report: Receives the progress.

    Raises:
        LimbeckError: one clear line: a model that cannot be loaded or takes fewer tokens than asked for, a device that
            is out of memory.
    """
    started = time.monotonic()
    cell = cells[0].cell
    prepared: PreparedTask = cells[0].prepared
    point = training_point(cell)
    with head_outputs.quiet_and_explain_oom():
        tokenizer = load_tokenizer(cell.model)
        arguments = training_arguments(point, cell.seed)
        model = load_task_model(cell.model, prepared.task, seed=cell.seed)
        head_outputs.check_inputs(cell.model, model, tokenizer, point.length)
        head_outputs.set_padding(model, tokenizer)
        tuner = FineTuner(model, tokenizer, prepared, arguments, point.class_weights)
        best_epochs = {}
        for ready in cells:
            best = _best_epoch(ready, tuner)
            if best is not None:
                best_epochs[ready.cell] = best
        tuner.train(report, list(best_epochs.values()))
    return Trained(tuner, best_epochs, time.monotonic() - started)


def _best_epoch(ready: ReadyCell, tuner: FineTuner) -> BestEpoch | None:
    """Return the callback that keeps the best epoch of a cell; None where the last one is kept."""
    prepared: PreparedTask = ready.prepared
    metric = training_point(ready.cell).best_epoch_by
    split = select_split(prepared)
    if metric is None or split is None:
        return None

    def selected() -> float:
        scores = score(prepared.task, split, prepared.rows[split], tuner.predict(prepared, split))
        return scores.get(metric, next(iter(scores.values())))

    return BestEpoch(selected)


def score_splits(
    tasks: Mapping[str, Task], prepared: PreparedTask, predictions: Mapping[str, Predictions]
) -> CellResult:
    """Score the predictions of splits, with the certainty of the scores.

    Args:
        tasks: By split the task, with the thresholds that are used there.
        prepared: Has the rows.
        predictions: By split.
    """
    scores = {}
    intervals = {}
    only_answers = {}
    for split, predicted in predictions.items():
        task = tasks[split]
        rows = prepared.rows[split]
        scores[split] = score(task, split, rows, predicted)
        ends = intervals_of(scores[split], task, rows, predicted)
        if ends:
            intervals[split] = ends
        answer = only_answer(task, predicted)
        if answer is not None:
            only_answers[split] = answer
    return CellResult(scores, intervals=intervals or None, only_answer=only_answers or None)
