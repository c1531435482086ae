"""`Planner`, which turns a request for an evaluation into tasks with their cells; no tokens are made yet.

A *cell* is one model on one task, at one grid point (a combination of settings) and with one seed. It has two
*identities*, hashes of all that its result and its fine-tuning depend on: a finished cell is found again by them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.core.kinds import kind_of
from limbeck.core.studies import Column
from limbeck.errors import RecipeError, suggestion
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
from limbeck.models.loading import load_config

_PADDED_ON_THE_RIGHT = " padded on the right"
"""Addition to the fingerprint of a model whose rows earlier versions padded on the left."""


@dataclass(frozen=True)
class PlannedTask:
    """A task with the cells of all models.

    Attributes:
        evaluated: The task with its settings, and a hash of its rows.
        cells: The cells of all models, in the order of the models.
        notes: Notes on the rows, and on scores that models cannot have, for the user to read.
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
        """The columns of the task in tables, those of variants last.

        A variant is a further way to score sentence vectors: cut to fewer components, or with the teacher's vectors of
        the documents (asymmetric).
        """
        variants: set[Variant] = set()
        for planned in self.cells:
            point = planned.cell.point
            if not isinstance(point, SimilarityPoint):
                continue
            # The first variant is the score of whole vectors, which has the columns of the task.
            _, *further_variants = point.variants
            # The teacher reads the documents in its own cell anyway, so its asymmetric scores are its ordinary ones.
            is_teacher = point.teacher == planned.cell.model
            if is_teacher:
                further_variants = [variant for variant in further_variants if not variant.asymmetric]
            variants.update(further_variants)
        columns = task_columns(self.task)
        return [*columns, *variant_columns(columns, sorted(variants, key=Variant.place))]

    @property
    def metric(self) -> str:
        """The metric that chooses grid points and fills the tables."""
        return self.settings.metric_of(self.task)

    @property
    def runs(self) -> int:
        """Number of runs that each grid point has, one for each seed."""
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
        # Making the settings refuses wrong ones, here before anything is downloaded.
        for name in self.names:
            request.settings(facts_of(name))
        # Files may have changed since an earlier evaluation of this process.
        load_rows.cache_clear()

    def check_models(self, models: Sequence[PlannedModel]) -> None:
        """Refuse models that do not fit the tasks.

        Raises:
            ModelError: for a model whose head does not fit a task, for a model without sentence vectors on a task that
                compares them, and for a router (two models, for queries and for documents) on a task without queries.
            RecipeError: for a class that is renamed although no model has it.
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
            models: All models, each of which gets cells. If the request names a teacher, it is the first of them.

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
            # The settings of a cell name a teacher only if the request does, and then it is the first model. Otherwise
            # the first model is passed here too, but not used.
            cells += [_identified(cell, task, model, teacher=models[0]) for cell in planned.cells]
            notes += planned.notes

        # Models have many notes in common; each is shown once.
        return PlannedTask(task, tuple(cells), tuple(dict.fromkeys(notes)))


def _identified(cell: Cell, task: EvaluatedTask, model: PlannedModel, *, teacher: PlannedModel) -> PlannedCell:
    """Return a cell with its identities.

    Args:
        cell: The cell.
        task: The task of the cell.
        model: The model of the cell.
        teacher: The teacher, if the settings of the cell name one; otherwise any model, which has no effect.
    """
    # Scores of sentence vectors may be compared with those of a teacher, whose weights then count too.
    teacher_fingerprint = None
    if isinstance(cell.point, SimilarityPoint) and cell.point.teacher is not None:
        teacher_fingerprint = teacher.fingerprint
    fingerprint = model.fingerprint
    # Earlier versions padded whole texts on the left, which moved the positions of their tokens. With an addition to
    # the fingerprint those scores do not count any more. Rows of words and answers were always padded on the right.
    is_read_by_head = not isinstance(cell.point, SimilarityPoint)
    is_of_whole_texts = not kind_of(task.task.kind).of_tokens
    if is_read_by_head and is_of_whole_texts and model.pads_against_positions:
        fingerprint += _PADDED_ON_THE_RIGHT
    cell_id = identity(cell, model=fingerprint, data=task.data, teacher=teacher_fingerprint)
    training_id = training_identity(cell, model=fingerprint, training_set=task.training_set)
    if training_id is None:
        # A cell without a fine-tuning shares nothing with others: it is run by itself.
        training_id = cell_id
    return PlannedCell(cell, id=cell_id, training=training_id)
