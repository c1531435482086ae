"""`PendingTask`: the cells of a task that are still to run, with the tokens of its rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from limbeck.core.studies import EvaluationCell
from limbeck.evaluation.evaluators.evaluator import Evaluator, ReadyCell, evaluator_of
from limbeck.evaluation.evaluators.prepared_task import PreparedTask, select_split
from limbeck.evaluation.plan.cell import PlannedCell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.plan.points import TrainingPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.tasks.splits import TRAIN

_TRAINING_COST = 3
"""Cost of a token that is trained on, beside one that is scored: a forward pass, and a backward pass of two."""
_COST_WITHOUT_TOKENS = 1.0


@dataclass(frozen=True)
class PendingTask:
    """A task whose cells are still to run, with the tokens of its rows.

    Attributes:
        planned: The task.
        evaluator: Its evaluator.
        cells: Those that are still to run.
        prepared: By tokenizer fingerprint, what the evaluator prepared.
        notes: On the task, its rows and tokens; of finished cells those that they had.
    """

    planned: PlannedTask
    evaluator: Evaluator
    cells: tuple[PlannedCell, ...]
    prepared: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def select(self) -> str | None:
        """The split that grid points are chosen on: the task's, else the first that is scored."""
        for prepared in self.prepared.values():
            if isinstance(prepared, PreparedTask):
                return select_split(prepared)
        task = self.planned.task
        return task.select or next(iter(task.scored), None)


def prepare_pending(
    planned: PlannedTask,
    models: Sequence[PlannedModel],
    finished: Mapping[str, EvaluationCell],
    request: EvaluationRequest,
) -> PendingTask:
    """Return the cells of a task that are still to run, with their tokens.

    Args:
        planned: The task.
        models: All models.
        finished: By identity, the cells that need not run again; their notes are the task's still.
        request: The request.

    Raises:
        CorpusError: for rows that cannot be encoded.
        ModelError: for a tokenizer that cannot be read, or cannot pad.
    """
    evaluator = evaluator_of(planned.name, request)
    prepared_by_tokenizer: dict[str, Any] = {}
    notes = list(planned.notes)
    for model in models:
        cells = planned.cells_of(model.name)
        pending_cells = [cell for cell in cells if cell.id not in finished]
        # Models with the same tokenizer share their tokens.
        if pending_cells and model.tokenizer not in prepared_by_tokenizer:
            prepared_by_tokenizer[model.tokenizer] = evaluator.prepare(
                planned.evaluated, pending_cells[0].cell, model, request
            )

        # Notes on tokens: those that were just made, else those that finished cells had.
        prepared = prepared_by_tokenizer.get(model.tokenizer)
        if isinstance(prepared, PreparedTask):
            notes += prepared.notes
        elif prepared is None:
            for cell in cells:
                if cell.id in finished:
                    notes += finished[cell.id].notes
    return PendingTask(
        planned,
        evaluator,
        cells=tuple(cell for cell in planned.cells if cell.id not in finished),
        prepared=prepared_by_tokenizer,
        notes=tuple(dict.fromkeys(notes)),
    )


def work_of(cells: Collection[ReadyCell], models: Mapping[str, PlannedModel]) -> float:
    """Estimate the cost of cells with one training, for the time that is left.

    The unit is arbitrary: tokens as they are, without padding, x Transformer parameters.

    Args:
        cells: At least one.
        models: By name.
    """
    first = next(iter(cells))
    if not isinstance(first.prepared, PreparedTask):
        return _COST_WITHOUT_TOKENS
    point = first.cell.point
    shape = models[first.cell.model].shape
    # Four square maps of the attention, and two of the feed-forward network.
    parameters = shape.layers * shape.hidden * (4 * shape.hidden + 2 * shape.ffn)

    scored_tokens = 0
    for ready in cells:
        length = getattr(point, "length", 0)
        scored_tokens += sum(ready.prepared.count_tokens(split, length) for split in ready.prepared.rows)
    trained_tokens = 0.0
    if isinstance(point, TrainingPoint):
        trained_tokens = point.epochs * first.prepared.count_tokens(TRAIN)
    return parameters * (_TRAINING_COST * trained_tokens + scored_tokens) + _COST_WITHOUT_TOKENS
