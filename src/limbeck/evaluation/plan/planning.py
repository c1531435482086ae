"""The plan of an evaluation in three steps: its tasks, the cells of all models, and those that are still to run."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from limbeck.core.studies import Column, EvaluationCell
from limbeck.errors import ModelError, RecipeError, suggestion
from limbeck.evaluation.evaluators import head_match
from limbeck.evaluation.evaluators.evaluator import (
    EvaluatedTask,
    Evaluator,
    ReadyCell,
    evaluator_of,
    facts_of,
)
from limbeck.evaluation.evaluators.rows import load_rows
from limbeck.evaluation.evaluators.tokens import PreparedTask, select_split
from limbeck.evaluation.plan.cell import Cell, PlannedCell, identity, training_identity
from limbeck.evaluation.plan.columns import Variant, task_columns, variant_columns
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import SimilarityPoint, TrainingPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.evaluation.tasks import splits as task_files
from limbeck.kinds.task import Task
from limbeck.models.heads import has_head
from limbeck.models.loading import load_config


def check_fine_tuned(models: Sequence[str], task: Task) -> None:
    """Refuse models without a head of the task that they are to be fine-tuned on.

    Raises:
        ModelError: if a model's family has none, or there is no such model.
    """
    for model in models:
        config = load_config(model)
        if not has_head(config, task.kind):
            words = task.kind.replace("_", " ")
            raise ModelError(f"The family {config.model_type} of '{model}' has no {words} head; choose another model.")


@dataclass(frozen=True)
class PlannedTask:
    """A task with the cells of all models.

    Attributes:
        evaluated: The task, as its evaluator plans it.
        cells: Of all models, in order.
        notes: On its rows, and on scores that models cannot have.
    """

    evaluated: EvaluatedTask
    cells: tuple[PlannedCell, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The task's name, as the user named it."""
        return self.evaluated.name

    @property
    def task(self) -> Task:
        """The task, with the splits that are there."""
        return self.evaluated.task

    @property
    def settings(self) -> FineTuning:
        """Its settings."""
        return self.evaluated.settings

    @property
    def data(self) -> str:
        """Fingerprint of its rows."""
        return self.evaluated.data

    @property
    def columns(self) -> list[Column]:
        """Its columns, those of further scores of sentence vectors last.

        A model's own documents are no further ones.
        """
        columns = task_columns(self.task)
        variants: set[Variant] = set()
        for planned in self.cells:
            point = planned.cell.point
            if isinstance(point, SimilarityPoint):
                is_teacher = point.teacher == planned.cell.model
                variants |= {each for each in point.variants[1:] if not (each.asymmetric and is_teacher)}
        return [*columns, *variant_columns(columns, sorted(variants, key=Variant.place))]

    @property
    def metric(self) -> str:
        """The metric that chooses grid points and fills the tables."""
        return self.settings.metric or self.task.metrics[0]

    @property
    def runs(self) -> int:
        """Runs of every grid point."""
        return len({planned.cell.seed for planned in self.cells})

    def cells_of(self, model: str) -> list[PlannedCell]:
        """Return the cells of a model, by its name."""
        return [planned for planned in self.cells if planned.cell.model == model]


class Planner:
    """Plans one task after the other, so that the rows of only one are in memory.

    Args:
        request: Models, tasks and settings.

    Attributes:
        names: The tasks, groups expanded.

    Raises:
        RecipeError: for an unknown task, evaluator, preset or setting.
        CorpusError: for a task file that is not there.
    """

    def __init__(self, request: EvaluationRequest) -> None:
        self.names = request.task_names()
        self.protocol = request.protocol
        self._request = request
        for name in self.names:
            request.settings(facts_of(name))  # Refused before anything is downloaded.
        load_rows.cache_clear()  # Files may have changed since an earlier evaluation of this process.

    def check_models(self, models: Sequence[PlannedModel]) -> None:
        """Refuse models that do not fit the tasks.

        Raises:
            ModelError: for a model without the head of a task, or one of another size or of other classes; of sentence
                vectors for one that makes none, and for a router where there are no queries.
            RecipeError: for a class that is renamed, and that no model has.
        """
        for model, name in itertools.product(models, self.names):
            evaluator_of(name, self._request).check(facts_of(name), model, self._request)
        if not self._request.as_is:
            return
        classes: dict[str, None] = {}
        for model in models:
            classes |= dict.fromkeys(head_match.names_of_classes(load_config(model.queries)))
        for name in self._request.classes:
            if name not in classes:
                raise RecipeError(
                    f"--classes names '{name}', which is not a class of any of the models.{suggestion(name, classes)}"
                )

    def plan(self, name: str, models: Sequence[PlannedModel] = ()) -> PlannedTask:
        """Read a task and plan its cells; no tokens are made.

        Args:
            name: A task's name, or the path of its file.
            models: All models.

        Raises:
            CorpusError: if its rows are not there or cannot be read, or it has nothing to score and nothing to predict.
            RecipeError: for settings that cannot be.
        """
        evaluator = evaluator_of(name, self._request)
        task = evaluator.task(name, self._request)
        cells: list[PlannedCell] = []
        notes = list(task.notes)
        for model in models:
            planned = evaluator.cells(task, model, models, self._request)
            cells += [_identified(cell, task, model, models[0]) for cell in planned.cells]
            notes += planned.notes
        return PlannedTask(task, tuple(cells), tuple(dict.fromkeys(notes)))


def _identified(cell: Cell, task: EvaluatedTask, model: PlannedModel, first: PlannedModel) -> PlannedCell:
    """Return a cell with its identities.

    Args:
        cell: The cell.
        task: Its task.
        model: Its model.
        first: The first model, which is the teacher where a cell has one.
    """
    has_teacher = isinstance(cell.point, SimilarityPoint) and cell.point.teacher is not None
    teacher = first.fingerprint if has_teacher else None
    cell_id = identity(cell, model=model.fingerprint, data=task.data, teacher=teacher)
    training = training_identity(cell, model=model.fingerprint, training_set=task.training_set)
    return PlannedCell(cell, cell_id, training or cell_id)


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
        task = self.planned.task
        for ready in self.prepared.values():
            if isinstance(ready, PreparedTask):
                return select_split(ready)
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
    pending = tuple(each for each in planned.cells if each.id not in finished)
    pending_ids = {each.id for each in pending}
    prepared: dict[str, Any] = {}
    notes = dict.fromkeys(planned.notes)
    for model in models:
        cells = planned.cells_of(model.name)
        of_model = [each for each in cells if each.id in pending_ids]
        if of_model and model.tokenizer not in prepared:
            prepared[model.tokenizer] = evaluator.prepare(planned.evaluated, of_model[0].cell, model, request)
        ready = prepared.get(model.tokenizer)
        if isinstance(ready, PreparedTask):
            notes |= dict.fromkeys(ready.notes)
        elif ready is None:
            for each in cells:
                if each.id in finished:
                    notes |= dict.fromkeys(finished[each.id].notes)
    return PendingTask(planned, evaluator, pending, prepared, tuple(notes))


def work_of(cells: Collection[ReadyCell], models: Mapping[str, PlannedModel]) -> float:
    """Estimate the cost of cells with one training, for the time that is left.

    In arbitrary units: tokens as they are, without padding, x Transformer parameters; training three times as much as
    scoring. Cells without tokens cost 1.

    Args:
        cells: At least one.
        models: By name.
    """
    first = next(iter(cells))
    if not isinstance(first.prepared, PreparedTask):
        return 1.0
    point = first.cell.point
    shape = models[first.cell.model].shape
    parameters = shape.layers * shape.hidden * (4 * shape.hidden + 2 * shape.ffn)
    scored = 0
    for ready in cells:
        length = getattr(point, "length", 0)
        scored += sum(ready.prepared.count_tokens(split, length) for split in ready.prepared.rows)
    trained = 0.0
    if isinstance(point, TrainingPoint):
        trained = 3 * point.epochs * first.prepared.count_tokens(task_files.TRAIN)
    return parameters * (trained + scored) + 1.0
