"""The evaluator of sentence vectors, which scores embedding models without training them.

A task has either *pairs* of texts, whose cosines are compared with labels, or *queries* that look for documents (a
retrieval). Beside the score of its whole vectors a model has further scores, its *variants*: of vectors cut to fewer
components, and of *asymmetric* retrievals, in which the teacher reads the documents. `limbeck.evaluation.plan.variants`
says more.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from limbeck.core.progress import Report, named, no_progress, part_of
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators.document_search import Search, intervals_over_queries, mean_over_queries
from limbeck.evaluation.evaluators.evaluator import (
    VECTORS,
    CellResult,
    EvaluatedTask,
    Evaluator,
    PlannedCells,
    ReadyCell,
    Scores,
    Share,
    register_as_evaluator,
)
from limbeck.evaluation.evaluators.head_outputs import quiet_and_explain_oom
from limbeck.evaluation.evaluators.prepared_task import PreparedTask, draw_splits, notes_of_draws
from limbeck.evaluation.evaluators.rows import plan_task, rows_of
from limbeck.evaluation.evaluators.sentence_vectors import (
    FOLLOWED_SIMILARITIES,
    TextReading,
    VectorPairs,
    are_kept,
    forget_models,
    longest_text,
    read_texts,
    vectors_of,
)
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import SimilarityPoint
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.plan.variants import Variant
from limbeck.evaluation.retrieval import ROLES
from limbeck.evaluation.similarities import spearman_agreement
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import intervals_of, score
from limbeck.kinds.task import Task
from limbeck.models.families import shape_of
from limbeck.models.loading import load_config
from limbeck.models.sentences import SentencePooling

AGREEMENT = "agreement"
"""Name of a score of students: Spearman's correlation of their cosines with their teacher's."""
_ALL_READ = 0.9
"""Share of a retrieval that is done when all texts are read, a guess; the rest is the search."""


@register_as_evaluator()
class ByVectors(Evaluator):
    """Scores models by their sentence vectors; there is one cell for each model and task."""

    name = VECTORS

    def check(self, task: Task, model: PlannedModel, request: EvaluationRequest) -> None:
        """Refuse a model that makes no sentence vectors, and a router where there are no queries."""
        if not KINDS[task.kind].has_queries:
            model.check_is_one(task)
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
        return PlannedCells([Cell(model.name, task.name, point, seed=0)], notes)

    def prepare(self, task: EvaluatedTask, cell: Cell, model: PlannedModel, request: EvaluationRequest) -> PreparedTask:
        """Return the rows that are drawn."""
        data = rows_of(task.name, request, training=False)
        rows = draw_splits(data, _point_of(cell).max_scored_rows)
        return PreparedTask(data.task, rows, notes=tuple(notes_of_draws(data, rows)))

    def run(self, ready: ReadyCell, trained: None, report: Share) -> CellResult:
        """Score the cell by the model's vectors."""
        started = time.monotonic()
        prepared: PreparedTask = ready.prepared
        # Each model is loaded once for all splits of the cell.
        try:
            with quiet_and_explain_oom():
                scored = score_vectors(ready.cell, prepared, report)
        finally:
            forget_models()
        # Splits of variants (`test@256`) have the same rows as their split, which is counted once.
        rows = {"train": 0}
        for split in scored.scores:
            if split in prepared.rows:
                rows[split] = len(prepared.rows[split])
        seconds = round(time.monotonic() - started, 3)
        return replace(scored, rows=rows, seconds=seconds)


def _point_of(cell: Cell) -> SimilarityPoint:
    """Return the settings of a cell of vectors."""
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
    has_queries = KINDS[task.task.kind].has_queries
    # One model reads queries and documents, except in a router's folder, which has a model for each.
    folders = dict.fromkeys((model.queries, model.documents))
    readers = [vectors_of(folder, settings.pooling) for folder in folders]
    reader_of_queries = readers[0]
    reader_of_documents = readers[-1]
    width = reader_of_queries.width(model.shape.hidden)
    similarity = reader_of_documents.similarity
    notes = []
    if has_queries and similarity not in FOLLOWED_SIMILARITIES:
        notes.append(f"{title}: scored by the cosine, although the folder of '{model.name}' says {similarity}")

    # Texts are read to the length that the model's folder says. The length is part of the cell's identity: a folder
    # with another one is scored anew. A retrieval may have several readers, whose lengths stand below.
    length = settings.length
    teacher_length = None
    if not has_queries:
        length = longest_text(model.queries, reader_of_queries, settings.length)

    # An asymmetric retrieval compares vectors of two models, so these need the same width.
    is_asymmetric = False
    if request.teacher is not None:
        teacher = models[0]
        teacher_reader = vectors_of(teacher.documents, settings.pooling)
        if model is not teacher:
            # The teacher reads the same texts for the agreement, so its prompts count as well.
            readers.append(teacher_reader)
        if has_queries:
            teacher_width = teacher_reader.width(shape_of(load_config(teacher.documents)).hidden)
            is_asymmetric = teacher_width == width
            notes.append(_note_on_asymmetry(title, model, teacher, width, teacher_width))
        else:
            # The point names the teacher's length only if it is not the model's.
            longest_of_teacher = longest_text(teacher.queries, teacher_reader, settings.length)
            if longest_of_teacher != length:
                teacher_length = longest_of_teacher

    further_widths, note_on_widths = _further_widths(task, model, models, width)
    notes += note_on_widths

    reader_lengths: tuple[int, ...] = ()
    if has_queries:
        reader_lengths = _lengths_of_readers(readers, length)
    point = SimilarityPoint(
        length=length,
        pooling=settings.pooling,
        max_scored_rows=settings.max_scored_rows,
        widths=further_widths,
        teacher=request.teacher,
        asymmetric=is_asymmetric,
        prompts=_prompts_of_readers(readers, has_queries=has_queries),
        dot=has_queries and similarity == "dot",
        teacher_length=teacher_length,
        reader_lengths=reader_lengths,
    )
    return point, notes


def _prompts_of_readers(readers: Sequence[SentencePooling], *, has_queries: bool) -> tuple[str, ...]:
    """Return all prompts before texts, which are part of a cell's identity; empty where all of them are.

    A model whose folder gets other prompts is thus scored anew, and a cell without prompts has the same identity as in
    earlier versions, which knew none.

    Args:
        readers: How each model that reads texts makes its vectors.
        has_queries: Whether the texts are queries and documents, which have prompts of their own.
    """
    prompts: list[str] = []
    for reader in readers:
        if has_queries:
            prompts += [reader.prompt(role) for role in ROLES]
        else:
            prompts.append(reader.prompt(None))
    return tuple(prompts) if any(prompts) else ()


def _lengths_of_readers(readers: Sequence[SentencePooling], length: int) -> tuple[int, ...]:
    """Return the most tokens of a text that each model of a retrieval reads; empty where all read `length`.

    They are part of a cell's identity, and left out for the sake of earlier versions, like empty prompts.

    Args:
        readers: How each model that reads texts makes its vectors.
        length: Most tokens of a text by the settings of the task.
    """
    # Where a folder does not say how much its model reads, the settings decide.
    lengths = [min(length, reader.max_length or length) for reader in readers]
    if all(reader_length == length for reader_length in lengths):
        return ()
    return tuple(lengths)


def _note_on_asymmetry(title: str, model: PlannedModel, teacher: PlannedModel, width: int, teacher_width: int) -> str:
    """Return the note on the asymmetric scores of a model, or on the reason for which it has none."""
    if width == teacher_width:
        return f"{title}, asymmetric: queries of each model, and documents of '{teacher.name}'"
    return (
        f"{title}: not asymmetric: the vectors of '{model.name}' have {width} components, and those "
        f"of '{teacher.name}' {teacher_width}"
    )


def _further_widths(
    task: EvaluatedTask, model: PlannedModel, models: Sequence[PlannedModel], width: int
) -> tuple[tuple[int, ...], list[str]]:
    """Return the widths that a model's vectors are cut to, and a note on those that they cannot be cut to.

    Args:
        task: Its settings may name the widths; otherwise all models are cut to the widths that any of them was trained
            for, so that they can be compared.
        model: The model.
        models: All models.
        width: Number of components of the model's whole vectors, which only a smaller width cuts.
    """
    chosen_widths = task.settings.widths
    if chosen_widths is None:
        trained_widths: set[int] = set()
        for planned in models:
            trained_widths.update(planned.widths)
        narrower_widths = [trained_width for trained_width in trained_widths if trained_width < width]
        return tuple(sorted(narrower_widths, reverse=True)), []

    narrower = tuple(chosen_width for chosen_width in chosen_widths if chosen_width < width)
    too_wide = [str(chosen_width) for chosen_width in chosen_widths if chosen_width >= width]
    notes = []
    if too_wide:
        shown = ", ".join(too_wide)
        notes.append(f"{task.task.title}: not cut to {shown}: the vectors of '{model.name}' have {width} components")
    return narrower, notes


def score_vectors(cell: Cell, prepared: PreparedTask, report: Report = no_progress) -> CellResult:
    """Score a model on a task of sentence vectors.

    A *variant* is a way to score the vectors: whole, cut to fewer components, or asymmetric, which means that the
    teacher's vectors of the documents stand in for the model's.

    Args:
        cell: The cell.
        prepared: The rows of its task.
        report: Receives the progress.

    Returns:
        Scores and their intervals: metric to value, by split for whole vectors, and by `{split}{variant}`
        (`test@256@teacher`) for other variants. A model that is compared with a teacher also has the metric
        `agreement`: Spearman's correlation of the cosines of its vectors with those of the teacher's whole vectors,
        over the pairs, or over an even sample of all queries and documents. It is left out where it is undefined.

    Raises:
        CorpusError: for rows of one text, or a single document.
        ModelError: for a model without sentence vectors, or with vectors that are not finite.
    """
    scores: Scores = {}
    intervals: dict[str, dict[str, list[float]]] = {}
    row_count = sum(len(prepared.rows[split]) for split in prepared.task.scored)
    rows_done = 0
    for split in prepared.task.scored:
        rows = prepared.rows[split]
        report_split = part_of(report, rows_done / row_count, (rows_done + len(rows)) / row_count)
        scored = _score_split(cell, prepared.task, split, rows, report_split)
        rows_done += len(rows)
        scores |= scored.scores
        intervals |= scored.intervals or {}
    return CellResult(scores, intervals=intervals or None)


class _SplitTexts(NamedTuple):
    """The texts of a split.

    Attributes:
        first: The first texts of pairs, or the queries of a retrieval.
        second: The second texts of pairs, or the documents.
        search: The retrieval; None for pairs.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    search: Search | None = None

    @property
    def roles(self) -> tuple[str, str] | None:
        """The role of each of the two lists, which decides the prompt before its texts; None for pairs."""
        return None if self.search is None else ROLES

    @property
    def reading_share(self) -> float:
        """Share of the work that is done when all texts are read: all of it, except for a retrieval."""
        return 1.0 if self.search is None else _ALL_READ


def _score_split(cell: Cell, task: Task, split: str, rows: Sequence[LabelledRow], report: Report) -> CellResult:
    """Return the scores of a split and of its variants, with their intervals; see `score_vectors`."""
    point = _point_of(cell)
    texts = _texts_of_split(task, split, rows)
    student, teacher = _read_by_both(cell, texts, report)

    scores: Scores = {}
    intervals: dict[str, dict[str, list[float]]] = {}
    report_search = part_of(report, texts.reading_share, 1.0)
    for number, variant in enumerate(point.variants):
        report_variant = part_of(report_search, number / len(point.variants), (number + 1) / len(point.variants))
        vectors = _vectors_of_variant(variant, student, teacher, normalize=not point.dot)
        if texts.search is None:
            figures = score(task, split, rows, vectors.cosines().tolist())
            interval_of_metric = intervals_of(figures, task, rows, predictions=())
        else:
            scores_of_queries = texts.search.score_queries(vectors.first, vectors.second, report_variant)
            all_figures = mean_over_queries(scores_of_queries)
            figures = {metric: all_figures[metric] for metric in task.metrics}
            interval_of_metric = intervals_over_queries(scores_of_queries, task.metrics)
        # Asymmetric vectors are partly the teacher's, so their agreement with it would say nothing of the student.
        if teacher is not None and not variant.asymmetric:
            agreement = _agreement(vectors, teacher, has_queries=texts.search is not None)
            # It is undefined if all cosines of a model are equal, as where all texts get the same vector.
            if not math.isnan(agreement):
                figures[AGREEMENT] = agreement
        place = f"{split}{variant}"
        scores[place] = figures
        if interval_of_metric:
            intervals[place] = interval_of_metric
    return CellResult(scores, intervals=intervals or None)


def _texts_of_split(task: Task, split: str, rows: Sequence[LabelledRow]) -> _SplitTexts:
    """Return the texts of a split: those of its pairs, or its distinct queries and documents.

    Args:
        task: The task.
        split: The name of the split.
        rows: Its rows.

    Raises:
        CorpusError: for rows of one text, or a single document.
    """
    title = f"{task.title} {split}"
    if KINDS[task.kind].has_queries:
        search = Search.of(rows, title)
        return _SplitTexts(search.queries, search.documents, search)
    first, second = _texts_of_pairs(rows, title)
    return _SplitTexts(first, second)


def _read_by_both(cell: Cell, texts: _SplitTexts, report: Report) -> tuple[VectorPairs, VectorPairs | None]:
    """Return the vectors of the cell's model, and its teacher's of the same texts.

    The teacher is one of the evaluated models. Its vectors are kept for the cells of all of its students.

    Args:
        cell: The cell.
        texts: The texts.
        report: Receives the progress, up to the share of the work that is the reading.

    Returns:
        The two. The second is None without a teacher, and in the teacher's own cell, where there is nothing to compare
        it with.
    """
    point = _point_of(cell)
    is_teacher = point.teacher == cell.model
    teacher_name = None if is_teacher else point.teacher
    # Vectors of length one have cosines as their inner products; models that compare by "dot" keep their lengths.
    reading = TextReading(roles=texts.roles, length=point.length, pooling=point.pooling, normalize=not point.dot)
    teacher_reading = reading._replace(length=point.teacher_length or point.length)

    # A teacher whose vectors are not kept yet reads the same texts, and takes half of the time.
    all_read = texts.reading_share
    student_read = all_read
    if teacher_name is not None:
        is_teacher_kept = are_kept(teacher_name, texts.first, texts.second, teacher_reading, cell.task)
        if not is_teacher_kept:
            student_read = all_read / 2
    student = read_texts(
        cell.model,
        texts.first,
        texts.second,
        reading,
        keep_for=cell.task if is_teacher else None,
        report=named(part_of(report, 0.0, student_read), "sentence vectors"),
    )
    if teacher_name is None:
        return student, None
    teacher = read_texts(
        teacher_name,
        texts.first,
        texts.second,
        teacher_reading,
        keep_for=cell.task,
        report=named(part_of(report, student_read, all_read), "sentence vectors of the teacher"),
    )
    return student, teacher


def _texts_of_pairs(rows: Sequence[Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the first and the second texts of pairs.

    Raises:
        CorpusError: for a row of one text.
    """
    if any(row.pair is None for row in rows):
        raise CorpusError(
            f"{where} has rows with a single text, but similarity is measured between two; choose a task with "
            "pairs of texts."
        )
    return tuple(row.text for row in rows), tuple(row.pair for row in rows)


def _vectors_of_variant(
    variant: Variant, student: VectorPairs, teacher: VectorPairs | None, *, normalize: bool
) -> VectorPairs:
    """Return the vectors that a variant scores, cut to its width.

    Args:
        variant: The variant.
        student: Vectors of the model that is scored.
        teacher: Vectors of its teacher, for asymmetric variants; None where the scored model is the teacher itself.
        normalize: Whether cut vectors are scaled to length one.
    """
    documents = student.second
    if variant.asymmetric and teacher is not None:
        documents = teacher.second
    return VectorPairs(student.first, documents).cut(variant.width, normalize=normalize)


def _agreement(student: VectorPairs, teacher: VectorPairs, *, has_queries: bool) -> float:
    """Return Spearman's correlation of the cosines of two models, -1 to 1; NaN where it is undefined.

    Args:
        student: The student's vectors of texts.
        teacher: The teacher's vectors of the same texts.
        has_queries: Whether each query is compared with each document (of an even sample of both, where there are many)
            rather than each first text with its second one.
    """
    if has_queries:
        return spearman_agreement(student.all_cosines().numpy(), teacher.all_cosines().numpy())
    return spearman_agreement(student.cosines().numpy(), teacher.cosines().numpy())
