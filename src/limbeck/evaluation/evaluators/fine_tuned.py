"""The evaluator of fine-tunings: each model is trained on a task's rows and scored on others, at every grid point."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from limbeck.core import paths
from limbeck.core.progress import Count, part_of
from limbeck.errors import LimbeckError, ModelError
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
from limbeck.evaluation.evaluators.prepared_task import (
    TRAINING_COST,
    PreparedTask,
    TokenKeys,
    prepare,
    select_split,
)
from limbeck.evaluation.evaluators.rows import grid_of, plan_task, rows_of, seeds_of, settings_for_models
from limbeck.evaluation.evaluators.split_scores import score_splits
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import TrainingPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.scoring import score
from limbeck.kinds.task import Predictions, Task
from limbeck.kinds.thresholds import choose_thresholds
from limbeck.models.heads import has_head
from limbeck.models.loading import load_config
from limbeck.models.padding import check_padding, set_padding
from limbeck.models.tokenizers import load_tokenizer


@register_as_evaluator()
class FineTuned(Evaluator):
    """Fine-tunes models on the rows of tasks; cells with the same training share it."""

    name = FINE_TUNED

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a router, whose two models read queries and documents, and a model whose family lacks the head."""
        model.check_is_one(task)
        config = load_config(model.queries)
        if not has_head(config, task.kind):
            words = task.kind.replace("_", " ")
            raise ModelError(
                f"The family {config.model_type} of '{model.name}' has no {words} head; choose another model."
            )

    def task(self, name: str, request: EvaluationRequest) -> EvaluatedTask:
        """Return a task with its rows to train on, hashed."""
        return plan_task(name, self.name, request, training=True)

    def cells(
        self, task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
    ) -> PlannedCells:
        """Return a cell for every grid point and seed, seeds innermost."""
        cells = []
        settings = settings_for_models(task, models, request)
        for point in grid_of(task.task, settings):
            cells += [Cell(model.name, task.name, point, seed=seed) for seed in seeds_of(settings, request)]
        return PlannedCells(cells)

    def prepare(self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest) -> PreparedTask:
        """Return the tokens of the rows to train on and of those that are scored."""
        tokenizer: Any = load_tokenizer(model.queries)
        check_padding(model.name, tokenizer)
        point = _training_point(cell)
        return prepare(
            rows_of(task.name, request, training=True),
            tokenizer,
            keys=TokenKeys(tokenizer=model.tokenizer, rows=task.data, training_set=task.training_set),
            cache_dir=paths.default_cache_dir(),
            length=point.length,
            stride=point.stride,
            max_scored_rows=point.max_scored_rows,
            positions=model.shape.positions,
            max_train_rows=point.max_train_rows,
            training=True,
        )

    def train(self, cells: Sequence[ReadyCell], report: Share) -> "Trained":
        """Return the one training of the cells."""
        return train_once(cells, report)

    def run(self, ready: ReadyCell, trained: "Trained", report: Share) -> CellResult:
        """Score the cell by the weights that its settings keep."""
        return trained.score(ready, report)


def _training_point(cell: Cell) -> TrainingPoint:
    """Return the settings of a fine-tuning's cell."""
    assert isinstance(cell.point, TrainingPoint)
    return cell.point


@dataclass(frozen=True)
class Trained:
    """A finished training, by which its cells are scored.

    Attributes:
        tuner: The finished fine-tuning, with its model.
        best_epochs: The best epoch of each cell that is not scored by the last weights.
        seconds: Seconds that the training took.
        scoring_begins: The share of the work that is done when a cell begins to be scored, by the number of tokens.
        scoring_ends: The share that is done at its end.
    """

    tuner: FineTuner
    best_epochs: Mapping[Cell, BestEpoch]
    seconds: float
    scoring_begins: Mapping[Cell, float]
    scoring_ends: Mapping[Cell, float]

    def score(self, ready: ReadyCell, report: Share) -> CellResult:
        """Score one of the cells, by the weights that its settings keep.

        Args:
            ready: The cell with its tokens.
            report: Receives the progress.

        Raises:
            LimbeckError: one clear line: a weight that is not finite, a device that is out of memory.
        """
        started = time.monotonic()
        prepared: PreparedTask = ready.prepared
        best_epoch = self.best_epochs.get(ready.cell)
        with head_outputs.quiet_and_explain_oom():
            self.tuner.settle(best_epoch)
            result = self._score_splits(ready.cell, prepared, report)
        seconds = self.seconds + time.monotonic() - started

        rows = {"train": prepared.train_rows}
        for split in result.scores:
            rows[split] = len(prepared.rows[split])
        queries = prepared.queries(result.scores)
        if queries is not None and prepared.train_queries is not None:
            queries = {"train": prepared.train_queries, **queries}
        # The weights are saved now, since the next cell may put those of another epoch into the model.
        weights = None
        if ready.keep is not None:
            weights = ready.keep(self.tuner.model, self.tuner.tokenizer)
        epoch = None
        if best_epoch is not None:
            epoch = best_epoch.epoch
        return replace(
            result,
            epoch=epoch,
            rows=rows,
            queries=queries,
            seconds=round(seconds, 3),
            training_seconds=round(self.seconds, 3),
            weights=weights,
        )

    def _score_splits(self, cell: Cell, prepared: PreparedTask, report: Share) -> CellResult:
        """Predict all splits of a task with the model's present weights, and score the labelled ones."""
        task = prepared.task
        select = select_split(task, prepared.rows)
        splits = list(task.scored)
        if select is not None and select not in splits:
            splits.append(select)

        unlabelled_splits = [split for split in task.predicted if split in prepared.rows and split not in splits]
        outputs = self._predict_splits(cell, prepared, [*splits, *unlabelled_splits], report)
        predictions = {split: outputs[split] for split in splits}

        # Thresholds of classes may be chosen on the select split. That split itself is scored without them, since they
        # would flatter the rows that they were chosen on.
        thresholds: tuple[float, ...] = task.thresholds
        if _training_point(cell).choose_thresholds and select is not None:
            thresholds = choose_thresholds(cast(Any, predictions[select]), prepared.rows[select])
        task_of_split = dict.fromkeys(splits, replace(task, thresholds=thresholds))
        if select is not None:
            task_of_split[select] = task
        result = score_splits(task_of_split, prepared, predictions)

        unlabelled = {split: outputs[split] for split in task.predicted if split in prepared.rows}
        return replace(result, predictions=unlabelled, thresholds=list(thresholds) or None)

    def _predict_splits(
        self, cell: Cell, prepared: PreparedTask, splits: Sequence[str], report: Share
    ) -> dict[str, Predictions]:
        """Predict splits of a task, one after the other, and report the share of the work that is done."""
        tokens = [prepared.count_tokens(split) for split in splits]
        # The shares at which the splits begin and end, in the part of the work that scores this cell.
        limits = np.cumsum([0, *tokens]) / max(sum(tokens), 1)
        start, end = self.scoring_begins[cell], self.scoring_ends[cell]
        predictions: dict[str, Predictions] = {}
        for number, split in enumerate(splits):
            amount, _ = prepared.amount(split)

            def report_rows(share: float, what: str, count: Count | None = None, /, *, amount: int = amount) -> None:
                assert count is not None
                report(start + (end - start) * share, f"scoring {count.done:,.0f} of {amount:,} {what}")

            report_split = part_of(report_rows, float(limits[number]), float(limits[number + 1]))
            predictions[split] = self.tuner.predict(prepared, split, report_split)
        return predictions


def train_once(cells: Sequence[ReadyCell], report: Share) -> Trained:
    """Fine-tune a model once, for all cells that it is then scored for.

    Args:
        cells: One or more cells with the same training, see `training_identity`. They differ in the rows that are
            scored, and in the epoch whose weights are kept.
        report: Receives the progress.

    Raises:
        LimbeckError: one clear line: a model that cannot be loaded or takes fewer tokens than asked for, a device that
            is out of memory.
    """
    started = time.monotonic()
    # Model, settings, seed and rows to train on are the same for all cells: the first one stands for them.
    first_cell = cells[0].cell
    prepared: PreparedTask = cells[0].prepared
    point = _training_point(first_cell)
    with head_outputs.quiet_and_explain_oom("batch_size or length"):
        tokenizer = load_tokenizer(first_cell.model)
        arguments = training_arguments(point, first_cell.seed)
        model = load_task_model(first_cell.model, prepared.task, seed=first_cell.seed)
        head_outputs.check_inputs(first_cell.model, model, tokenizer, point.length)
        set_padding(model, tokenizer)
        tuner = FineTuner(model, tokenizer, prepared, arguments, class_weights=point.class_weights)
        # Callbacks that the training calls after each epoch, for the cells that are not scored by the last weights.
        best_epochs = {}
        for ready in cells:
            best_epoch = _best_epoch(ready, tuner)
            if best_epoch is not None:
                best_epochs[ready.cell] = best_epoch
        scoring_begins, scoring_ends = _shares_of_scoring(cells, best_epochs)

        def report_training(share: float, detail: str = "", count: Count | None = None, /) -> None:
            # The training has ended when the first cell begins to be scored.
            report(scoring_begins[first_cell] * share, detail, count)

        tuner.train(report_training, list(best_epochs.values()))
    return Trained(
        tuner=tuner,
        best_epochs=best_epochs,
        seconds=time.monotonic() - started,
        scoring_begins=scoring_begins,
        scoring_ends=scoring_ends,
    )


def _shares_of_scoring(
    cells: Sequence[ReadyCell], best_epochs: Collection[Cell]
) -> tuple[dict[Cell, float], dict[Cell, float]]:
    """Estimate the share of the work that is done when each cell begins to be scored, and when it has been.

    The work is the training, then the scoring of one cell after the other. Its costs are estimated by tokens, so that
    equal shares take about equally long.

    Args:
        cells: The cells of a training, in the order in which they are scored.
        best_epochs: Those of them that are also scored after every epoch.
    """
    first = cells[0]
    epochs = _training_point(first.cell).epochs
    training_cost = TRAINING_COST * epochs * first.prepared.count_tokens(TRAIN)
    scoring_costs = []
    for ready in cells:
        prepared: PreparedTask = ready.prepared
        split = select_split(prepared.task, prepared.rows)
        if ready.cell in best_epochs and split is not None:
            training_cost += epochs * prepared.count_tokens(split)
        scoring_costs.append(_count_tokens_to_score(prepared))

    done = training_cost
    total = max(training_cost + sum(scoring_costs), 1)
    begins: dict[Cell, float] = {}
    ends: dict[Cell, float] = {}
    for ready, cost in zip(cells, scoring_costs, strict=True):
        begins[ready.cell] = done / total
        done += cost
        ends[ready.cell] = done / total
    return begins, ends


def _count_tokens_to_score(prepared: PreparedTask) -> int:
    """Count the tokens of all splits of a task; 0 where they cannot be read, which fails the cell when it is scored."""
    try:
        return sum(prepared.count_tokens(split) for split in prepared.rows)
    except (OSError, LimbeckError):
        return 0


def _best_epoch(ready: ReadyCell, tuner: FineTuner) -> BestEpoch | None:
    """Return the callback that keeps the best epoch of a cell; None where the last one is kept."""
    prepared: PreparedTask = ready.prepared
    metric = _training_point(ready.cell).best_epoch_by
    split = select_split(prepared.task, prepared.rows)
    if metric is None or split is None:
        return None

    def select_score() -> float:
        """Return the score of the model as it is on the select split."""
        scores = score(prepared.task, split, prepared.rows[split], tuner.predict(prepared, split))
        return scores[metric]

    return BestEpoch(select_score, metric)
