"""`Planner`, which makes of a request its tasks with the cells of all models; no tokens are made."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.core.studies import Column
from limbeck.errors import ModelError, RecipeError, suggestion
from limbeck.evaluation.evaluators import head_match
from limbeck.evaluation.evaluators.evaluator import EvaluatedTask, evaluator_of, facts_of
from limbeck.evaluation.evaluators.rows import load_rows
from limbeck.evaluation.plan.cell import Cell, PlannedCell
from limbeck.evaluation.plan.columns import task_columns, variant_columns
from limbeck.evaluation.plan.identity import identity, training_identity
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.plan.variants import Variant
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.kinds.task import Task
from limbeck.models.heads import has_head
from limbeck.models.loading import load_config


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
        """Its columns, those of further scores of sentence vectors last."""
        variants: set[Variant] = set()
        for planned in self.cells:
            point = planned.cell.point
            if not isinstance(point, SimilarityPoint):
                continue
            is_teacher = point.teacher == planned.cell.model
            # The first variant is the score of whole vectors, which has the columns of the task.
            for variant in point.variants[1:]:
                # A teacher's own documents are no further ones.
                if not (variant.asymmetric and is_teacher):
                    variants.add(variant)
        columns = task_columns(self.task)
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
        protocol: The preset.

    Raises:
        RecipeError: for an unknown task, evaluator, preset or setting.
        CorpusError: for a task file that is not there.
    """

    def __init__(self, request: EvaluationRequest) -> None:
        self.names = request.task_names()
        self.protocol = request.protocol
        self._request = request
        # Settings are refused before anything is downloaded.
        for name in self.names:
            request.settings(facts_of(name))
        # Files may have changed since an earlier evaluation of this process.
        load_rows.cache_clear()

    def check_models(self, models: Sequence[PlannedModel]) -> None:
        """Refuse models that do not fit the tasks.

        Raises:
            ModelError: for a model without the head of a task, or one of another size or of other classes; of sentence
                vectors for one that makes none, and for a router where there are no queries.
            RecipeError: for a class that is renamed, and that no model has.
        """
        for model, name in itertools.product(models, self.names):
            evaluator_of(name, self._request).check(facts_of(name), model, self._request)
        if self._request.as_is:
            self._check_renamed_classes(models)

    def _check_renamed_classes(self, models: Sequence[PlannedModel]) -> None:
        """Refuse the renaming of a class that no model has."""
        classes: list[str] = []
        for model in models:
            classes += head_match.names_of_classes(load_config(model.queries))
        known_classes = list(dict.fromkeys(classes))
        for name in self._request.classes:
            if name not in known_classes:
                hint = suggestion(name, known_classes)
                raise RecipeError(f"--classes names '{name}', which is not a class of any of the models.{hint}")

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
            cells += [_identified(cell, task, model, teacher=models[0]) for cell in planned.cells]
            notes += planned.notes
        return PlannedTask(task, tuple(cells), tuple(dict.fromkeys(notes)))


def _identified(cell: Cell, task: EvaluatedTask, model: PlannedModel, *, teacher: PlannedModel) -> PlannedCell:
    """Return a cell with its identities.

    Args:
        cell: The cell.
        task: Its task.
        model: Its model.
        teacher: The first model, which is the teacher where the settings of the cell name one.
    """
    teacher_fingerprint = None
    if isinstance(cell.point, SimilarityPoint) and cell.point.teacher is not None:
        teacher_fingerprint = teacher.fingerprint
    cell_id = identity(cell, model=model.fingerprint, data=task.data, teacher=teacher_fingerprint)
    training_id = training_identity(cell, model=model.fingerprint, training_set=task.training_set)
    return PlannedCell(cell, id=cell_id, training=training_id or cell_id)


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
