"""The plan of a grid of cells: the models and tasks of a request, and the cells that are still to run."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from limbeck.core import paths, records
from limbeck.core.devices import bf16_is_fast, has_accelerator
from limbeck.core.kinds import KINDS
from limbeck.core.studies import Column, EvaluationCell
from limbeck.corpus.classes import balance, count_classes
from limbeck.errors import CorpusError, ModelError, RecipeError, suggestion
from limbeck.evaluation import as_is, encoding, head_match, task_files
from limbeck.evaluation import cell as grid_cell
from limbeck.evaluation.cell import AsIsPoint, Cell, Point, SimilarityPoint, TrainingPoint
from limbeck.evaluation.columns import Variant, task_columns, variant_columns
from limbeck.evaluation.request import EvaluationRequest, parse_overrides
from limbeck.evaluation.retrieval import ROLES
from limbeck.evaluation.settings import FineTuning
from limbeck.evaluation.task_rows import hold_out_rows
from limbeck.evaluation.tasks import Task, TaskData, find_task
from limbeck.evaluation.vectors import fingerprint_of, readers_of, vectors_of
from limbeck.models.cross_encoders import check_no_prompt
from limbeck.models.families import Shape, shape_of
from limbeck.models.fingerprint import tokenizer_fingerprint
from limbeck.models.heads import Head, has_head
from limbeck.models.loading import load_config
from limbeck.models.sentences import trained_widths
from limbeck.models.tokenizers import load_tokenizer


def check_fine_tuned(models: Sequence[str], task: Task) -> None:
    """Refuse models without a head of the task that they are to be fine-tuned on.

    Raises:
        ModelError: if a model's family has none, or there is no such model.
    """
    for model in models:
        config = load_config(model)
        if not has_head(config, cast(Head, task.kind)):
            words = task.kind.replace("_", " ")
            raise ModelError(f"The family {config.model_type} of '{model}' has no {words} head; choose another model.")


@dataclass(frozen=True)
class PlannedModel:
    """A model that is evaluated.

    Attributes:
        name: As the user named it.
        fingerprint: Of its weights and tokenizer.
        tokenizer: Fingerprint of its tokenizer.
        shape: Its shape.
        on_task: Whether rows of students that were distilled on each task stand beside it: the run that made it
            distilled on labelled rows, or it is scored as it is.
        queries: Where the model is that reads queries, of a router's folder one of its two; else the model itself.
        documents: The same of documents.
        widths: To which the configuration of that of queries says that vectors were trained to be cut.
    """

    name: str
    fingerprint: str
    tokenizer: str
    shape: Shape
    on_task: bool = False
    queries: str = ""
    documents: str = ""
    widths: tuple[int, ...] = ()

    @property
    def published_as(self) -> tuple[str, int]:
        """Its shape and vocabulary, as published rows are matched by."""
        return f"{self.shape.layers}x{self.shape.hidden}", self.shape.vocabulary


@dataclass(frozen=True)
class PlannedCell:
    """A cell and what identifies it.

    Attributes:
        cell: The cell.
        id: Its identity.
        training: Identity of its fine-tuning, which cells of other tasks may share; its own where nothing is trained.
    """

    cell: Cell
    id: str
    training: str


@dataclass(frozen=True)
class PlannedTask:
    """A task that is evaluated.

    Attributes:
        name: As the user named it.
        task: The task, with the splits that are there.
        settings: Its settings.
        data: Fingerprint of its rows.
        cells: Of all models, in order.
        prepared: By tokenizer fingerprint; only of models with cells that are still to run.
        notes: On its rows.
    """

    name: str
    task: Task
    settings: FineTuning
    data: str
    cells: tuple[PlannedCell, ...]
    prepared: Mapping[str, encoding.PreparedTask]
    notes: tuple[str, ...]

    @property
    def columns(self) -> list[Column]:
        """Its columns, those of further scores of sentence vectors last.

        A model's own documents are no further ones.
        """
        columns = task_columns(self.task)
        found: dict[Variant, None] = {}
        for planned in self.cells:
            if isinstance(point := planned.cell.point, SimilarityPoint):
                own = point.teacher == planned.cell.model
                found |= dict.fromkeys(each for each in point.variants[1:] if not (each.asymmetric and own))
        return [*columns, *variant_columns(columns, sorted(found, key=Variant.place))]

    @property
    def metric(self) -> str:
        """The metric that chooses grid points and fills the tables."""
        return self.settings.metric or self.task.metrics[0]


def plan_models(names: Sequence[str], *, as_is: bool = False) -> list[PlannedModel]:
    """Look at every model, before any work is done.

    Args:
        names: As the user named them.
        as_is: Whether they are scored as they are.

    Raises:
        RecipeError: if a model is named twice.
        ModelError: if a model is not there, or its family is unknown.
    """
    if twice := [name for name in dict.fromkeys(names) if list(names).count(name) > 1]:
        raise RecipeError(f"The model '{twice[0]}' is named twice; name each model once.")
    return [
        PlannedModel(
            name,
            fingerprint_of(name),
            tokenizer_fingerprint(readers[0]),
            shape_of(config),
            as_is or _distilled_on_task(name),
            *readers,
            trained_widths(config),
        )
        for name in names
        for readers in (readers_of(name),)
        for config in (load_config(readers[0]),)
    ]


def _distilled_on_task(name: str) -> bool:
    run = paths.run_of_student(Path(name).expanduser())
    return run is not None and records.load(records.Run, run).on_task


class Planner:
    """Plans one task after the other, so that the rows of only one are in memory.

    Args:
        request: Models, tasks and settings.

    Raises:
        RecipeError: for an unknown task, preset or setting.
        CorpusError: for a task file that is not there.
    """

    def __init__(self, request: EvaluationRequest) -> None:
        self.names, self.protocol = request.task_names(), request.protocol
        self._request = request
        tasks = [find_task(name).task for name in self.names]
        self._overrides = parse_overrides(request.overrides, [task.name for task in tasks], as_is=request.as_is)
        for task in tasks:
            self.protocol.settings(task, self._overrides)  # Refused before anything is downloaded.
        self._tasks = tasks

    def check_models(self, models: Sequence[PlannedModel]) -> None:
        """Refuse models that do not fit the tasks: without sentence vectors, or, as they are, by their heads.

        Raises:
            ModelError: for a model without the head of a task, or one of another size or of other classes; of sentence
                vectors for one that makes none, and for a router where there are no queries.
            RecipeError: for a class that is renamed, and that no model has.
        """
        for model, task in itertools.product(models, self._tasks):
            kind = KINDS[task.kind]
            if model.queries != model.documents and not (kind.of_vectors and kind.has_queries):
                raise ModelError(
                    f"'{model.name}' sends queries and documents to different models, but {task.title} has "
                    f"neither; give one of the two: '{model.queries}' or '{model.documents}'."
                )
            for place in (model.queries, model.documents) if kind.of_vectors else ():
                vectors_of(place, self.protocol.settings(task, self._overrides).pooling)
        known: dict[str, None] = {}
        for model in models if self._request.as_is else ():
            config = load_config(model.queries)
            known |= dict.fromkeys(head_match.names_of_classes(config))
            check_no_prompt(model.queries)
            for task in self._tasks:
                if not KINDS[task.kind].of_vectors:
                    head_match.match_head(model.name, config, task, self._request.classes)
        for name in self._request.classes:
            if self._request.as_is and name not in known:
                raise RecipeError(
                    f"--classes names '{name}', which is not a class of any of the models.{suggestion(name, known)}"
                )

    def plan(
        self,
        name: str,
        models: Sequence[PlannedModel] = (),
        finished: Mapping[str, EvaluationCell] = MappingProxyType({}),
    ) -> PlannedTask:
        """Load a task, plan its cells, and prepare the tokens of the unfinished ones.

        Args:
            name: A task's name, or the path of its file.
            models: All models.
            finished: By identity, the cells that need not run again; their notes are the task's still.

        Raises:
            CorpusError: if its rows are not there or cannot be read, or it has nothing to score and nothing to predict.
            ModelError: for a tokenizer that cannot be read, or cannot pad.
            RecipeError: for settings that cannot be.
        """
        data = task_files.load_task(name, data=self._request.data, training=not self._request.as_is)
        task = data.task
        if not (task.scored or task.predicted):
            raise CorpusError(
                f"{task.title} has no split to score or to predict: name one in its files, or give --data a folder "
                "that has one."
            )
        settings = self.protocol.settings(task, self._overrides)
        if settings.metric not in (None, *task.metrics):
            names = ", ".join(task.metrics)
            raise RecipeError(
                f"{task.title} is not scored by '{settings.metric}'; set {task.name}.metric to one of {names} by --set."
            )
        untrained = self._request.as_is
        runs = grid_cell.seeds(task, self._request.seeds or settings.seeds, as_is=untrained)
        bf16 = has_accelerator() and bf16_is_fast()
        points = grid_cell.grid(task, settings, bf16=bf16, as_is=untrained)
        count = len(points) * len(runs)
        if self._request.keep_weights == "best" and count > 1 and not task.scored:
            raise CorpusError(
                f"{task.title} has no labelled rows by which to choose the best of {count} runs; give --data a "
                "folder that has its development rows, or ask for a single run: one grid point and --seeds 1."
            )
        picks_run = count > 1 and "best" in (settings.pick, self._request.keep_weights)
        if (
            find_task(name).development is None
            and (picks_run or _chooses(points))
            and data.splits.get(task_files.TRAIN)
        ):
            data = hold_out_rows(data)
            task = data.task
        rows, training_set = grid_cell.data_fingerprint(data), grid_cell.training_set_fingerprint(data)
        cells: list[PlannedCell] = []
        prepared: dict[str, encoding.PreparedTask] = {}
        notes = dict.fromkeys([*data.notes, *(_told_of_classes(data, points[0]))])
        for model in models:
            if isinstance(points[0], AsIsPoint):
                config, classes = load_config(model.name), self._request.classes
                head = head_match.match_head(model.name, config, task, classes)
                points, notes = [replace(points[0], classes=head.classes)], notes | dict.fromkeys(head.notes)
            elif isinstance(points[0], SimilarityPoint):
                point, told = self._of_vectors(points[0], model, models, task)
                points, notes = [point], notes | dict.fromkeys(told)
            own = [Cell(model.name, name, point, seed) for point in points for seed in runs]
            planned = [_planned(cell, model, rows, training_set, models[0]) for cell in own]
            cells += planned
            if model.tokenizer not in prepared and any(cell.id not in finished for cell in planned):
                tokenizer: Any = load_tokenizer(model.queries)
                if not isinstance(points[0], SimilarityPoint):
                    as_is.check_padding(model.name, tokenizer)
                keys = encoding.TokenKeys(model.tokenizer, rows, training_set)
                prepared[model.tokenizer] = encoding.prepare(
                    data, points[0], tokenizer, keys=keys, cache_dir=paths.default_cache_dir()
                )
            ready, ended = prepared.get(model.tokenizer), (finished.get(cell.id) for cell in planned)
            said = ready.notes if ready else (note for cell in ended if cell for note in cell.notes)
            notes |= dict.fromkeys(said)
        return PlannedTask(name, task, settings, rows, tuple(cells), prepared, tuple(notes))

    def _of_vectors(
        self, base: SimilarityPoint, model: PlannedModel, models: Sequence[PlannedModel], task: Task
    ) -> tuple[SimilarityPoint, list[str]]:
        """Return the point of a model on a task of sentence vectors, and notes on scores that it cannot have."""
        settings, first = self.protocol.settings(task, self._overrides), models[0]
        widths = settings.widths
        if widths is None:
            widths = tuple(sorted({width for each in models for width in each.widths}, reverse=True))
        searched, teacher = KINDS[task.kind].has_queries, self._request.teacher
        read = [vectors_of(place, base.pooling) for place in dict.fromkeys((model.queries, model.documents))]
        width, other, notes = read[0].width(model.shape.hidden), 0, []
        similarity = read[-1].similarity
        if searched and similarity not in (None, "cosine", "dot"):
            notes = [f"{task.title}: scored by the cosine, although the folder of '{model.name}' says {similarity}"]
        if teacher is not None and model is not first:
            read.append(vectors_of(first.documents, base.pooling))
        if searched and teacher is not None:
            other = read[-1].width(shape_of(load_config(first.documents)).hidden)
            told = f"{task.title}, asymmetric: queries of each model, and documents of '{first.name}'"
            if other != width:
                told = (
                    f"{task.title}: not asymmetric: the vectors of '{model.name}' have {width} components, and those "
                    f"of '{first.name}' {other}"
                )
            notes.append(told)
        if wider := [one for one in settings.widths or () if one >= width]:
            sizes = ", ".join(map(str, wider))
            notes.append(f"{task.title}: not cut to {sizes}: the vectors of '{model.name}' have {width} components")
        prompts = tuple(each.prompt(role) for each in read for role in (ROLES if searched else (None,)))
        point = replace(
            base,
            widths=tuple(one for one in widths if one < width),
            teacher=teacher,
            asymmetric=other == width,
            prompts=prompts if any(prompts) else (),
            dot=searched and similarity == "dot",
        )
        return point, notes


def _chooses(points: Sequence[Point]) -> bool:
    """Whether a grid point, an epoch or a threshold is chosen by scores."""
    first = points[0]
    chosen = isinstance(first, TrainingPoint) and (first.best_epoch_by is not None or first.choose_thresholds)
    return chosen or len(points) > 1


def _told_of_classes(data: TaskData, point: Point) -> Iterator[str]:
    """Say where the classes of the rows to train on are uneven, and where no thresholds can be chosen.

    Raises:
        CorpusError: if these rows are all alike, or cannot be balanced.
    """
    task, kind = data.task, KINDS[data.task.kind]
    rows = data.splits.get(task_files.TRAIN, ())
    if not isinstance(point, TrainingPoint) or not kind.has_classes or kind.of_tokens or not rows:
        return
    counts = count_classes(np.array([row.label for row in rows]), task.labels, kind.label)
    if counts.has_one:
        raise CorpusError(f"{task.title} {task.train}: {counts.describe_one()}; add rows of other classes.")
    if point.class_weights is not None:
        balance(point.class_weights, counts)
    if (uneven := counts.describe_rare()) is not None:
        yield f"{task.title} {task.train}: {uneven[0].lower()}{uneven[1:]}"
    if point.choose_thresholds and not {*task.scored} - {task.select}:
        ends = " in the figures; leaderboard files have the chosen ones" if task.predicted else ""
        yield (
            f"{task.title}: thresholds stay 0.5{ends}, since {task.select}, on which they are chosen, is all that is "
            "scored"
        )


def work_of(cells: Collection[encoding.PreparedCell], models: Mapping[str, PlannedModel]) -> float:
    """Estimate the cost of cells with one training, for the time that is left.

    In arbitrary units: tokens as they are, without padding, x Transformer parameters; training three times as much as
    scoring.

    Args:
        cells: At least one.
        models: By name.
    """
    first = next(iter(cells))
    point, shape = first.cell.point, models[first.cell.model].shape
    parameters = shape.layers * shape.hidden * (4 * shape.hidden + 2 * shape.ffn)
    scored = sum(cell.task.count_tokens(split, point.length) for cell in cells for split in cell.task.rows)
    trained = 3 * point.epochs * first.task.count_tokens(task_files.TRAIN) if isinstance(point, TrainingPoint) else 0.0
    return parameters * (trained + scored) + 1.0


def _planned(cell: Cell, model: PlannedModel, rows: str, training_set: str, first: PlannedModel) -> PlannedCell:
    taught = isinstance(cell.point, SimilarityPoint) and cell.point.teacher is not None
    teacher = first.fingerprint if taught else None
    own = grid_cell.identity(cell, model=model.fingerprint, data=rows, teacher=teacher)
    return PlannedCell(
        cell, own, grid_cell.training_identity(cell, model=model.fingerprint, training_set=training_set) or own
    )
