"""`Evaluator`, which turns tasks and models into cells and runs them, and the registry of evaluators.

`limbeck evaluate` asks the evaluator of each task for its cells, leaves out those that are finished, and has it run the
others. `fine_tuned`, `as_is` and `vectors` score limbeck's own tasks; the tasks of any other evaluator, such as `mteb`,
are named `NAME:TASK`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeAlias, TypeVar

from limbeck.core.progress import Count
from limbeck.core.registry import PluginPoint, Registry, is_built_in
from limbeck.errors import PluginError
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import VersionedPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.evaluation.tasks.registry import check_trainable, evaluator_named, find_task
from limbeck.kinds.task import Predictions, SplitFacts, Task


class Share(Protocol):
    """Receives how much of a cell is done: `report(0.4)`, or with more to show `report(0.4, "epoch 2 of 3", count)`."""

    def __call__(self, share: float, detail: str = "", count: Count | None = None, /) -> None:
        """Receive progress.

        Args:
            share: The share of the cell that is done, 0 to 1.
            detail: What is done, and how it goes, such as "epoch 2 of 3, step 40 of 96, loss 0.41".
            count: What was counted so far in this cell, such as steps, for the rate.
        """


Scores: TypeAlias = dict[str, dict[str, float]]
"""Split to metric to value, 0 to 1 (correlations -1 to 1)."""

SPLIT = "test"
"""The split of a task whose evaluator has only one score for it."""

FINE_TUNED = "fine_tuned"
AS_IS = "as_is"
VECTORS = "vectors"
MTEB = "mteb"
_OWN = (FINE_TUNED, AS_IS, VECTORS, MTEB)
"""Names of the package's evaluators, which are those of their files too."""


@dataclass(frozen=True)
class CellResult:
    """Scores and predictions of a cell, with their cost.

    Attributes:
        scores: The scores of every scored split, and of the split that settings are chosen on.
        predictions: Predictions of the unlabelled splits, by split.
        epoch: The epoch whose weights were scored; None for the last weights.
        rows: Numbers of rows: of those to train on under `"train"`, and of every scored split under its name.
        queries: The numbers of queries that these rows are of, in a ranking; None for other kinds.
        seconds: Duration without the making of tokens; a training that is shared counts for each of its cells.
        training_seconds: Duration of the training; 0 where nothing is trained.
        weights: Hash of the weights as they were kept; None where they are not kept.
        thresholds: Probability from which a row is given each class, where a row may have several; None if none were
            chosen.
        intervals: 95 % intervals of scores over the rows or queries of a split, by split and metric; None without any.
        only_answer: By split, the one answer that a model gives to all rows, a sign that it has learned nothing; None
            if its answers differ on all splits.
        chance: Scores of a model that does not read the rows, by split and metric; None where they are 0.
    """

    scores: Scores
    predictions: Mapping[str, Predictions] = field(default_factory=dict)
    epoch: float | None = None
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    training_seconds: float = 0.0
    weights: str | None = None
    thresholds: list[float] | None = None
    intervals: dict[str, dict[str, list[float]]] | None = None
    only_answer: dict[str, str] | None = None
    chance: dict[str, dict[str, float]] | None = None
    queries: dict[str, int] | None = None


@dataclass(frozen=True)
class EvaluatedTask:
    """A task as its evaluator plans it; nothing is tokenised yet.

    Attributes:
        name: The task's name, as the user gave it.
        evaluator: Name of its evaluator.
        task: The task, with the splits that are there.
        settings: The settings of the task.
        data: Fingerprint of all of its rows; other rows make other cells.
        training_set: Fingerprint of the rows to train on.
        notes: Notes on its rows, for the user to read.
    """

    name: str
    evaluator: str
    task: Task
    settings: FineTuning
    data: str
    training_set: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedCells:
    """The cells of one model on a task.

    Attributes:
        cells: The cells, in the order of the grid.
        notes: Notes on scores that they cannot have, for the user to read.
    """

    cells: Sequence[Cell]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ReadyCell:
    """A cell that is ready to run: with what its evaluator prepared for it.

    Attributes:
        cell: The cell.
        prepared: What `Evaluator.prepare` returned: a `PreparedTask` for limbeck's own evaluators.
        keep: Function of a model and its tokenizer that saves the weights, and returns their hash; None where they are
            not kept.
    """

    cell: Cell
    prepared: Any
    keep: Callable[[Any, Any], str] | None = None


class Evaluator:
    """Evaluates models on tasks.

    Subclass it, give it a `name` and `metrics`, and write `score`; or override `task`, `cells` and `run` for settings,
    several splits or trainings.

    Attributes:
        name: The evaluator's; its tasks are named `NAME:TASK`.
        metrics: Names of its metrics, the main one first; scores are 0 to 1, or -1 to 1.
        version: Raise it when the same model would get other scores: its cells then run anew.

    Example:
        >>> @register_as_evaluator()
        ... class Layers(Evaluator):
        ...     name = "layers"
        ...     metrics = ("share_of_twelve",)
        ...
        ...     def score(self, model, task, report):
        ...         return {"share_of_twelve": load_config(model).num_hidden_layers / 12}
    """

    name: str
    metrics: tuple[str, ...] = ()
    version: str = "1"

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a model that does not fit a task, before any work is done; unless overridden, every model fits.

        Args:
            task: The facts of the task; its rows have not been read yet.
            model: One of the request's.
            request: The request.

        Raises:
            ModelError: for a model that does not fit.
        """

    def task(self, name: str, request: EvaluationRequest) -> EvaluatedTask:
        """Return a task with everything that its cells depend on; its rows are read, but no tokens are made.

        Args:
            name: The task, as the user named it: `NAME:TASK` for an evaluator from outside the package.
            request: The request.

        Raises:
            LimbeckError: for a task that is not there, cannot be read, or has nothing to score.
        """
        task = self.facts(name)
        return EvaluatedTask(
            name=name,
            evaluator=self.name,
            task=task,
            settings=request.settings(task),
            data=f"{name} {self.version}",
        )

    def facts(self, name: str) -> Task:
        """Return the facts of a task: its metrics, and the splits that it is scored on.

        Args:
            name: `NAME:TASK`.
        """
        return Task(
            name=name,
            title=name.replace(":", " "),
            group="own",
            kind=self.name,
            metrics=self.metrics,
            train=None,
            select=None,
            scored=(SPLIT,),
            splits={SPLIT: SplitFacts()},
        )

    def cells(
        self, task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
    ) -> PlannedCells:
        """Return the cells of a model on a task.

        Args:
            task: The task, as `task` returned it.
            model: The model whose cells are returned.
            models: All models; the first is the one that others are compared with.
            request: The request.
        """
        return PlannedCells([Cell(model.name, task.name, VersionedPoint(self.version), seed=0)])

    def prepare(self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest) -> Any:
        """Return what `run` needs besides the cell, such as tokens; it is pickled if cells run in other processes.

        Before any cell is run, it is called once for each task and tokenizer with cells that are still to run.

        Args:
            task: The task, as `task` returned it.
            cell: One of the task's cells, which stands for all with the same tokenizer.
            model: The model of the cell.
            request: The request.
        """
        return None

    def train(self, cells: Sequence[ReadyCell], report: Share) -> Any:
        """Do the work that several cells share, such as one training, and return what `run` needs of it.

        Args:
            cells: All cells with the same identity of their training (`PlannedCell.training`); a single cell where
                nothing is trained.
            report: Receives the progress.

        Raises:
            LimbeckError: one clear line.
        """
        return None

    def run(self, ready: ReadyCell, trained: Any, report: Share) -> CellResult:
        """Return the result of a cell.

        Args:
            ready: The cell, with what `prepare` returned.
            trained: The value that `train` returned.
            report: Receives the progress.

        Raises:
            PluginError: if `score` leaves a metric out.
            LimbeckError: one clear line.
        """
        started = time.monotonic()
        # The task's name is `NAME:TASK`, of which `score` takes the second part.
        _, _, task = ready.cell.task.partition(":")
        scores = dict(self.score(ready.cell.model, task, report))
        for metric in self.metrics:
            if metric not in scores:
                raise PluginError(
                    f"The evaluator '{self.name}' returned no score for its metric '{metric}'; return a score for "
                    "each of its metrics."
                )
        return CellResult({SPLIT: scores}, seconds=round(time.monotonic() - started, 3))

    def score(self, model: str, task: str, report: Share) -> Mapping[str, float]:
        """Return the scores of a model on a task, by metric.

        Args:
            model: A folder, `package:NAME` or a Hub name.
            task: The task, without the name of the evaluator.
            report: Receives the progress.
        """
        raise NotImplementedError


E = TypeVar("E", bound=Evaluator)


def _problem(evaluator: Evaluator) -> str | None:
    """Return why an evaluator cannot be added, as the end of a sentence; None where it can."""
    has_score = type(evaluator).score is not Evaluator.score
    if has_score and not evaluator.metrics:
        return "it has no metrics; name those that its score returns, the main one first"
    return None


def _import_own() -> Iterable[tuple[str, Evaluator]]:
    """Import the files of limbeck's own evaluators, whose decorators register them.

    A registry's `source` may return further items to register; here there are none.
    """
    for name in _OWN:
        import_module(f"limbeck.evaluation.evaluators.{name}")
    return ()


EVALUATORS: Registry[Evaluator] = Registry(
    "evaluator",
    plugins=PluginPoint(
        group="limbeck.evaluators",
        expected=Evaluator,
        decorator="register_as_evaluator()",
        problem=_problem,
        code=type,
    ),
    source=_import_own,
)
"""Name to evaluator."""


def register_as_evaluator(*, replace: bool = False) -> Callable[[type[E]], type[E]]:
    """Return a class decorator that adds an evaluator to the registry, and returns the class unchanged.

    Args:
        replace: Whether an evaluator of the same name from outside the package is replaced, as when a cell of a
            notebook is run again. limbeck's own evaluators are never replaced.

    Raises:
        PluginError: if the name is taken, or it has no metrics.
    """

    def register(evaluator_class: type[E]) -> type[E]:
        evaluator = evaluator_class()
        EVALUATORS.add(evaluator.name, evaluator, replace=replace, built_in=is_built_in(evaluator_class))
        return evaluator_class

    return register


def evaluator_of(name: str, request: EvaluationRequest) -> Evaluator:
    """Return the evaluator of a task.

    Args:
        name: The task, as the user named it.
        request: The request, which says whether models are scored as they are.

    Raises:
        RecipeError: for an unknown task or evaluator.
    """
    # `NAME:TASK` names an evaluator; for all other tasks it is one of limbeck's own.
    prefix = evaluator_named(name)
    if prefix is not None:
        return EVALUATORS[prefix]
    definition = find_task(name)
    if not definition.is_trained:
        return EVALUATORS[VECTORS]
    if request.as_is:
        return EVALUATORS[AS_IS]
    check_trainable(definition.task)
    return EVALUATORS[FINE_TUNED]


def facts_of(name: str) -> Task:
    """Return the facts of a task, before its rows are read.

    Args:
        name: The task, as the user named it.

    Raises:
        RecipeError: for an unknown task or evaluator.
        CorpusError: for a task file that cannot be read.
    """
    prefix = evaluator_named(name)
    if prefix is not None:
        return EVALUATORS[prefix].facts(name)
    return find_task(name).task
