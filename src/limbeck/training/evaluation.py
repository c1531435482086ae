"""Measuring a run's student beside its teacher, as anyone would load them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel

from limbeck.core.progress import CorpusProgress, Report, no_progress, part_of
from limbeck.corpus import Document, LabelledCorpus, PadCollator, build_corpus, open_stream
from limbeck.errors import LimbeckError
from limbeck.evaluation import Amounts, Side, compare_models, measure_task
from limbeck.models.loading import load_model
from limbeck.models.locating import is_local, resolve_model
from limbeck.recipe.evaluation import EvaluationSpec
from limbeck.training.development import measure_tasks, measures_tasks
from limbeck.training.rows import AnyCorpus
from limbeck.training.run import Run
from limbeck.training.stage_rows import label_kind

_PAIRS = 1500
_RETRIEVAL_PAIRS = 700
_BATCH_SIZES = (1, 32)
"""Amounts that a recipe leaves open."""


def evaluate_student(run: Run, report: Report = no_progress) -> dict[str, Any]:
    """Measure the saved student, as anyone would load it, beside the teacher, both in float32.

    Args:
        run: With its student saved.
        report: Receives progress.
    """
    spec = run.plan.recipe.evaluation
    teacher: PreTrainedModel = run.teachers.load()
    student = load_model(str(run.student_folder))
    teacher_folder = resolve_model(run.plan.recipe.teacher.model)
    documents = _held_out_documents(run)
    texts = None
    if documents is not None:
        texts = [(document.title, document.body) if document.title else document.text for document in documents]
    teacher_vectors, student_vectors = run.plan.vectors_of_both(run.student_folder)

    part_of_texts = 0.5 if measures_tasks(run.plan) else 1.0
    comparison = compare_models(
        Side(
            teacher,
            run.tokenizer,
            teacher_vectors,
            max_length=spec.length,
            folder=teacher_folder if is_local(teacher_folder) else None,
        ),
        Side(
            student,
            run.tokenizer,
            teacher_vectors if student_vectors is None else student_vectors,
            max_length=spec.length,
            folder=run.student_folder,
        ),
        texts,
        _amounts(run, spec),
        asymmetric=bool(run.plan.vector_stages),
        widths=run.plan.trained_widths,
        seed=run.plan.recipe.seed,
        report=part_of(report, 0.0, part_of_texts),
    )
    start = time.perf_counter()
    development = measure_tasks(
        run.plan, run.tokenizer, run.student_folder, run.teachers.load, part_of(report, part_of_texts, 1.0)
    )
    if not development:
        return comparison.to_dict() | _score_task(run)
    comparison.seconds["development"] = round(time.perf_counter() - start, 3)
    return comparison.to_dict() | {"development": [figures.to_dict() for figures in development]}


def _amounts(run: Run, spec: EvaluationSpec) -> Amounts:
    """Return how much is measured: the amounts of the recipe, and the usual ones that it leaves open.

    Args:
        run: The run.
        spec: What the recipe says.
    """
    # The sentence vectors of a classifier are nobody's answer, and labelled rows have no titles to find them by.
    compares_vectors = spec.quality and run.plan.head in (None, "masked_lm")
    has_titles = not (run.corpora and isinstance(run.corpora[0], LabelledCorpus))
    return Amounts(
        pairs=(spec.pairs or _PAIRS) if compares_vectors else 0,
        retrieval_pairs=(spec.retrieval_pairs or _RETRIEVAL_PAIRS) if compares_vectors and has_titles else 0,
        latency_batch_sizes=tuple(spec.batch_sizes or _BATCH_SIZES),
        latency_length=spec.length,
        latency_seconds=spec.latency_seconds if spec.speed else 0.0,
    )


def _held_out_documents(run: Run) -> Sequence[Document] | None:
    """Return the documents that a run holds out, without stages those of its recipe's text; None without text."""
    if run.corpora:
        return run.corpora[0].held_out_documents()
    if (settings := run.plan.text_alone) is None:
        return None
    build: Callable[..., AnyCorpus] = open_stream if settings.streaming else build_corpus
    with CorpusProgress(run.console) as progress:
        return build(settings, run.tokenizer, progress=progress).held_out_documents()


def _score_task(run: Run) -> dict[str, Any]:
    """Score a task-specific student on its last stage's held-out rows, beside the teacher if that has the head too."""
    scored = [
        (choice, corpus)
        for choice, corpus in zip(run.plan.stages, run.corpora, strict=True)
        if choice.student is None and choice.student_head is not None and choice.pairing.task != "text"
    ]
    if not scored:
        return {}
    choice, corpus = scored[-1]
    teacher = run.teachers.load(choice.teacher, head=choice.teacher_head) if choice.teacher_head is not None else None
    student = load_model(str(run.student_folder), head=choice.student_head)
    collate = PadCollator(run.tokenizer.pad_token_id, side=run.tokenizer.padding_side, labels=label_kind(choice))
    try:
        scores = measure_task(teacher, student, corpus.held_out, collate, choice.pairing.task)
        return {"task": {**scores.to_dict(), "stage": choice.spec.title, "teacher_name": choice.teacher.title}}
    except LimbeckError as error:
        return {"task": {"unavailable": str(error)}}
