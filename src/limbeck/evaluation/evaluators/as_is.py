"""The evaluator of models as they are: each is scored by its own head, and nothing is trained."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from limbeck.core import paths
from limbeck.core.progress import Count, part_of
from limbeck.evaluation.evaluators import head_match, head_outputs
from limbeck.evaluation.evaluators.evaluator import (
    AS_IS,
    CellResult,
    EvaluatedTask,
    Evaluator,
    PlannedCells,
    ReadyCell,
    Share,
    register_as_evaluator,
)
from limbeck.evaluation.evaluators.prepared_task import PreparedTask, TokenKeys, prepare
from limbeck.evaluation.evaluators.rows import plan_task, rows_of, settings_for_models
from limbeck.evaluation.evaluators.split_scores import score_splits
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import AsIsPoint, stride_of
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.kinds.task import Predictions, Task
from limbeck.models.cross_encoders import check_no_prompt
from limbeck.models.loading import load_config
from limbeck.models.padding import check_padding
from limbeck.models.tokenizers import load_tokenizer


@register_as_evaluator()
class AsIs(Evaluator):
    """Scores models by their heads, without training; there is one cell for each model and task."""

    name = AS_IS

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a model whose head does not fit the task."""
        model.check_is_one(task)
        check_no_prompt(model.queries)
        head_match.match_head(model.name, load_config(model.queries), task, request.classes)

    def task(self, name: str, request: EvaluationRequest) -> EvaluatedTask:
        """Return a task with the rows that are scored or predicted, hashed."""
        return plan_task(name, self.name, request, training=False)

    def cells(
        self, task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
    ) -> PlannedCells:
        """Return one cell, by default in float32."""
        settings = settings_for_models(task, models, request)
        match = head_match.match_head(model.name, load_config(model.name), task.task, request.classes)
        point = AsIsPoint(
            length=settings.length,
            stride=stride_of(task.task, settings),
            bf16=bool(settings.bf16),
            max_scored_rows=settings.max_scored_rows,
            classes=match.classes,
            # A task without scored splits is predicted in any case, so its cells do not depend on the setting.
            predict=settings.predict and bool(task.task.scored),
        )
        return PlannedCells([Cell(model.name, task.name, point, seed=0)], match.notes)

    def prepare(self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest) -> PreparedTask:
        """Return the tokens of the rows that are scored or predicted."""
        tokenizer: Any = load_tokenizer(model.queries)
        check_padding(model.name, tokenizer)
        point = _point_of(cell)
        return prepare(
            rows_of(task.name, request, training=False),
            tokenizer,
            keys=TokenKeys(tokenizer=model.tokenizer, rows=task.data, training_set=task.training_set),
            cache_dir=paths.default_cache_dir(),
            length=point.length,
            stride=point.stride,
            max_scored_rows=point.max_scored_rows,
            positions=model.shape.positions,
            # A task without scored splits would have no result if it were not predicted.
            predicting=point.predict or not task.task.scored,
        )

    def run(self, ready: ReadyCell, trained: None, report: Share) -> CellResult:
        """Score the cell by the model's head."""
        started = time.monotonic()
        prepared: PreparedTask = ready.prepared
        with head_outputs.quiet_and_explain_oom():
            result = _predict_and_score(ready.cell, prepared, report)
        rows = {split: len(prepared.rows[split]) for split in result.scores}
        queries = prepared.queries(result.scores)
        return replace(result, rows=rows, queries=queries, seconds=round(time.monotonic() - started, 3))


def _point_of(cell: Cell) -> AsIsPoint:
    """Return the settings of a cell that is scored as it is."""
    assert isinstance(cell.point, AsIsPoint)
    return cell.point


def _predict_and_score(cell: Cell, prepared: PreparedTask, report: Share) -> CellResult:
    """Predict every split of a task, and score those that are labelled.

    Args:
        cell: The cell.
        prepared: The task of the cell, with its tokens.
        report: Receives the share of the rows that are done.
    """
    task = prepared.task
    point = _point_of(cell)
    tokenizer = load_tokenizer(cell.model)
    model = head_outputs.load_head(cell.model, task, tokenizer, point.length)
    unlabelled_splits = [split for split in task.predicted if split in prepared.rows]
    splits = [*task.scored, *unlabelled_splits]
    total = max(sum(len(prepared.rows[split]) for split in splits), 1)

    # Rows of the splits that are done, and what progress counts of them: queries of a ranking.
    done = 0
    amount_done = 0

    def report_rows(share: float, what: str, count: Count | None = None, /) -> None:
        """Report what is done of all splits, where `count` is that of the present split."""
        assert count is not None
        report(share, what, Count(amount_done + count.done, count.unit))

    predictions: dict[str, Predictions] = {}
    for split in splits:
        end = done + len(prepared.rows[split])
        predictions[split] = head_outputs.predict(
            model,
            tokenizer,
            prepared,
            split,
            bf16=point.bf16,
            classes=point.classes,
            report=part_of(report_rows, done / total, end / total),
        )
        done = end
        amount_done += prepared.amount(split)[0]

    scored = {split: predictions[split] for split in task.scored}
    result = score_splits(dict.fromkeys(task.scored, task), prepared, scored)
    return replace(result, predictions={split: predictions[split] for split in unlabelled_splits})
