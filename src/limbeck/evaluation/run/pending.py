"""`PendingTask`: the cells of a task that are still to run, with the tokens of its rows.

A *cell* is one model on one task, at one grid point, with one seed. Here it is met as a `PlannedCell`, a cell with its
identities, and as a `ReadyCell`, a cell with what its evaluator prepared for it. limbeck's own evaluators prepare a
`PreparedTask` (rows and tokens); an evaluator from outside the package may prepare any object, or nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from limbeck.core.studies import EvaluationCell
from limbeck.evaluation.evaluators.evaluator import Evaluator, ReadyCell, evaluator_of
from limbeck.evaluation.evaluators.prepared_task import TRAINING_COST, PreparedTask, select_split
from limbeck.evaluation.plan.cell import PlannedCell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.plan.points import TrainingPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.results.notes import without_sizes_of_draws
from limbeck.evaluation.tasks.splits import TRAIN

_COST_WITHOUT_TOKENS = 1.0
"""Cost of cells whose tokens cannot be counted; a small constant that keeps every cost above 0."""


@dataclass(frozen=True)
class PendingTask:
    """The cells of a task that are still to run, with the tokens of its rows.

    Attributes:
        planned: The task with all of its cells, finished ones too.
        evaluator: The evaluator of the task.
        cells: The cells that are still to run.
        prepared: What the evaluator prepared, by the fingerprint of the tokenizer: models with the same tokenizer share
            it.
        notes: Notes on the task, its rows and its tokens, for the user to read. Where no tokens were made, because all
            cells of a model are finished, they are the notes that its cells were saved with.
    """

    planned: PlannedTask
    evaluator: Evaluator
    cells: tuple[PlannedCell, ...]
    prepared: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def select(self) -> str | None:
        """The split whose scores choose the grid point: the task's select split, else the first that is scored."""
        # A prepared task knows which splits have rows, whatever its tokenizer.
        for prepared in self.prepared.values():
            if isinstance(prepared, PreparedTask):
                return select_split(prepared.task, prepared.rows)
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
        planned: The task with all of its cells.
        models: All models.
        finished: The saved rows of the cells that need not run again, by identity.
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
        # Models with the same tokenizer share their tokens. Any cell stands for all, since all of a task have the same
        # rows, cut to the same length.
        if pending_cells and model.tokenizer not in prepared_by_tokenizer:
            prepared_by_tokenizer[model.tokenizer] = evaluator.prepare(
                planned.evaluated, pending_cells[0].cell, model, request
            )

        # Notes on tokens are those of the tokens that were just made. If none were, the rows of finished cells have
        # them. What an evaluator from outside the package prepared has no notes.
        prepared = prepared_by_tokenizer.get(model.tokenizer)
        if prepared is None:
            for cell in cells:
                if cell.id in finished:
                    notes += finished[cell.id].notes
        elif isinstance(prepared, PreparedTask):
            notes += prepared.notes

    # Models have many notes in common; each is shown once.
    notes = without_sizes_of_draws(dict.fromkeys(notes))
    return PendingTask(
        planned,
        evaluator,
        cells=tuple(cell for cell in planned.cells if cell.id not in finished),
        prepared=prepared_by_tokenizer,
        notes=tuple(notes),
    )


def work_of(cells: Collection[ReadyCell], models: Mapping[str, PlannedModel]) -> float:
    """Estimate the cost of cells that share a training, by which the progress of all cells is weighted.

    cost = parameters of the Transformer layers x (3 x trained tokens + scored tokens), in arbitrary units; padding is
    not counted.

    Args:
        cells: One or more cells with the same model, grid point and seed.
        models: All models, by name.
    """
    # Model, point and rows to train on are the same for all cells: the first one stands for them.
    first = next(iter(cells))
    if not isinstance(first.prepared, PreparedTask):
        # An evaluator from outside the package prepares something else, whose tokens nobody can count.
        return _COST_WITHOUT_TOKENS
    point = first.cell.point
    shape = models[first.cell.model].shape
    # The attention has four square matrices (query, key, value, output), the feed-forward network two of hidden x ffn.
    parameters = shape.layers * shape.hidden * (4 * shape.hidden + 2 * shape.ffn)

    # Where texts are read without a file of tokens, the length bounds the estimate of each text. The point of an
    # evaluator from outside the package may say no length.
    length = getattr(point, "length", 0)
    scored_tokens = 0
    for ready in cells:
        scored_tokens += sum(ready.prepared.count_tokens(split, length) for split in ready.prepared.rows)
    trained_tokens = 0.0
    if isinstance(point, TrainingPoint):
        trained_tokens = point.epochs * first.prepared.count_tokens(TRAIN)
    return parameters * (TRAINING_COST * trained_tokens + scored_tokens) + _COST_WITHOUT_TOKENS
