"""The evaluator of sentence vectors: cosines of pairs, and queries that look for documents; nothing is trained."""

import math
import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators.evaluator import (
    VECTORS,
    CellResult,
    EvaluatedTask,
    Evaluator,
    PlannedCells,
    ReadyCell,
    Share,
    register_as_evaluator,
)
from limbeck.evaluation.evaluators.fine_tuned import check_one_model
from limbeck.evaluation.evaluators.head_outputs import quiet_and_explain_oom
from limbeck.evaluation.evaluators.rows import plan_task, rows_of
from limbeck.evaluation.evaluators.search import Search
from limbeck.evaluation.evaluators.sentence_vectors import TextReading, read_texts, vectors_of
from limbeck.evaluation.evaluators.tokens import PreparedTask, draw_splits, notes_of_draws
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.retrieval import ROLES
from limbeck.evaluation.similarities import spearman_agreement
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import intervals_of, score
from limbeck.kinds.task import Task
from limbeck.models.families import shape_of
from limbeck.models.inference import cut_vectors
from limbeck.models.loading import load_config

AGREEMENT = "agreement"
"""Name of the correlation with the teacher's cosines among the figures of a model."""
_MOST_AGREED = 1000
"""Queries, and documents, whose cosines agree or not."""

Vectors = tuple[Tensor, Tensor]
"""Vectors of two lists of texts, `[texts, width]` each."""


@register_as_evaluator()
class ByVectors(Evaluator):
    """Scores models by their sentence vectors as they are; a cell a model and task."""

    name = VECTORS

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a model that makes no sentence vectors, and a router where there are no queries."""
        if not KINDS[task.kind].has_queries:
            check_one_model(task, model)
        pooling = request.settings(task).pooling
        vectors_of(model.queries, pooling)
        vectors_of(model.documents, pooling)

    def task(self, name: str, request: EvaluationRequest) -> EvaluatedTask:
        """Return a task with the rows that are scored, hashed."""
        return plan_task(name, self.name, request, training=False)

    def cells(
        self, task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
    ) -> PlannedCells:
        """Return one cell, with the further scores that the model's vectors can have."""
        point, notes = _plan_point(task, model, models, request)
        return PlannedCells([Cell(model.name, task.name, point, 0)], notes)

    def prepare(self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest) -> PreparedTask:
        """Return the rows that are drawn."""
        data = rows_of(task.name, request, training=False)
        rows = draw_splits(data, _point_of(cell).max_scored_rows)
        return PreparedTask(data.task, rows, notes=tuple(notes_of_draws(data, rows)))

    def run(self, ready: ReadyCell, trained: None, report: Share) -> CellResult:
        """Score the cell by the model's vectors."""
        started = time.monotonic()
        prepared: PreparedTask = ready.prepared
        with quiet_and_explain_oom():
            scores = score_vectors(ready.cell, prepared)
        intervals = {}
        for split in prepared.task.scored:
            ends = intervals_of(scores[split], prepared.task, prepared.rows[split], ())
            if ends:
                intervals[split] = ends
        rows = {"train": 0}
        for split in scores:
            if split in prepared.rows:
                rows[split] = len(prepared.rows[split])
        seconds = round(time.monotonic() - started, 3)
        return CellResult(scores, rows=rows, seconds=seconds, intervals=intervals or None)


def _point_of(cell: Cell) -> SimilarityPoint:
    assert isinstance(cell.point, SimilarityPoint)
    return cell.point


def _plan_point(
    task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], request: EvaluationRequest
) -> tuple[SimilarityPoint, list[str]]:
    """Return the settings of a model on a task, and notes on scores that it cannot have.

    Args:
        task: The task.
        model: The model.
        models: All models; the first is the teacher, where the request names one.
        request: The request.
    """
    title = task.task.title
    settings = task.settings
    teacher = models[0]
    is_searched = KINDS[task.task.kind].has_queries
    readers = [vectors_of(place, settings.pooling) for place in dict.fromkeys((model.queries, model.documents))]
    width = readers[0].width(model.shape.hidden)
    similarity = readers[-1].similarity
    notes = []
    if is_searched and similarity not in (None, "cosine", "dot"):
        notes.append(f"{title}: scored by the cosine, although the folder of '{model.name}' says {similarity}")

    # Queries may look through the documents of a teacher that makes vectors of the same width.
    if request.teacher is not None and model is not teacher:
        readers.append(vectors_of(teacher.documents, settings.pooling))
    is_asymmetric = False
    if is_searched and request.teacher is not None:
        teacher_width = readers[-1].width(shape_of(load_config(teacher.documents)).hidden)
        is_asymmetric = teacher_width == width
        if is_asymmetric:
            notes.append(f"{title}, asymmetric: queries of each model, and documents of '{teacher.name}'")
        else:
            notes.append(
                f"{title}: not asymmetric: the vectors of '{model.name}' have {width} components, and those "
                f"of '{teacher.name}' {teacher_width}"
            )

    widths = settings.widths
    if widths is None:
        widths = tuple(sorted({each for planned in models for each in planned.widths}, reverse=True))
    too_wide = [str(each) for each in settings.widths or () if each >= width]
    if too_wide:
        notes.append(
            f"{title}: not cut to {', '.join(too_wide)}: the vectors of '{model.name}' have {width} components"
        )

    roles: Sequence[str | None] = ROLES if is_searched else (None,)
    prompts = tuple(reader.prompt(role) for reader in readers for role in roles)
    point = SimilarityPoint(
        length=settings.length,
        pooling=settings.pooling,
        max_scored_rows=settings.max_scored_rows,
        widths=tuple(each for each in widths if each < width),
        teacher=request.teacher,
        asymmetric=is_asymmetric,
        prompts=prompts if any(prompts) else (),
        dot=is_searched and similarity == "dot",
    )
    return point, notes


def score_vectors(cell: Cell, prepared: PreparedTask) -> dict[str, dict[str, float]]:
    """Score a model on a task of sentence vectors.

    Args:
        cell: The cell.
        prepared: The rows of its task.

    Returns:
        Metric to value, by split and, of a variant, by split and variant; see `SimilarityPoint.variants`. Of a model
        with a teacher also `agreement`: Spearman's correlation of its cosines with those of the teacher's whole
        vectors, of a retrieval over an even part of all queries and documents.

    Raises:
        CorpusError: for rows of one text, or a single document.
        ModelError: for a model without sentence vectors, or with vectors that are not finite.
    """
    task = prepared.task
    point = _point_of(cell)
    scores: dict[str, dict[str, float]] = {}
    for split in task.scored:
        rows = prepared.rows[split]
        where = f"{task.title} {split}"
        search = Search.of(rows, where) if KINDS[task.kind].has_queries else None
        if search is None:
            reading = TextReading(None, point.length, point.pooling, not point.dot)
            first, second = _pairs_of(rows, where)
        else:
            reading = TextReading(ROLES, point.length, point.pooling, not point.dot)
            first, second = search.queries, search.documents
        student = read_texts(cell.model, first, second, reading)
        teacher = None
        if point.teacher not in (None, cell.model):
            teacher = read_texts(str(point.teacher), first, second, reading)

        for variant in point.variants:
            documents = student[1] if teacher is None or not variant.asymmetric else teacher[1]
            vectors = _cut((student[0], documents), variant.width, normalize=not point.dot)
            if search is None:
                figures = score(task, split, rows, _cosines(vectors).tolist())
            else:
                all_figures = search.score(*vectors)
                figures = {metric: all_figures[metric] for metric in task.metrics}
            if teacher is not None and not variant.asymmetric:
                figures[AGREEMENT] = _agreement(vectors, teacher, all_pairs=search is not None)
            scores[f"{split}{variant}"] = figures
    return scores


def _pairs_of(rows: Sequence[Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the first and the second texts of pairs.

    Raises:
        CorpusError: for a row of one text.
    """
    if any(row.pair is None for row in rows):
        raise CorpusError(f"{where} has rows of a single text; similarity needs pairs.")
    return tuple(row.text for row in rows), tuple(row.pair for row in rows)


def _cut(vectors: Vectors, width: int | None, *, normalize: bool) -> Vectors:
    """Return vectors cut to their first components, scaled to length one again unless they are of any length."""
    first, second = vectors
    if normalize:
        return cut_vectors(first, width), cut_vectors(second, width)
    return first[:, :width], second[:, :width]


def _cosines(vectors: Vectors) -> Tensor:
    """Return the cosine of each pair of vectors of length one, `[pairs]`."""
    first, second = vectors
    return (first * second).sum(-1)


def _agreement(student: Vectors, teacher: Vectors, *, all_pairs: bool) -> float:
    """Return Spearman's correlation of the cosines of two models.

    Args:
        student: Vectors of the student.
        teacher: Vectors of the same texts.
        all_pairs: Compare all pairs of queries and documents, evenly thinned, rather than pairs of rows.
    """
    if not all_pairs:
        return spearman_agreement(_cosines(student).numpy(), _cosines(teacher).numpy())
    cosines = []
    for vectors in (student, teacher):
        queries, documents = (each[:: math.ceil(len(each) / _MOST_AGREED)] for each in vectors)
        cosines.append((queries @ documents.T).flatten().numpy())
    return spearman_agreement(cosines[0], cosines[1])
