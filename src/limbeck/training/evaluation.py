"""Measuring a run's student beside its teacher, as anyone would load them."""

from typing import Any

from transformers import PreTrainedModel

from limbeck.core.progress import Report, no_progress
from limbeck.corpus import LabelledCorpus, PadCollator
from limbeck.errors import LimbeckError
from limbeck.evaluation import compare_models, measure_task
from limbeck.models.loading import load_model
from limbeck.models.locating import is_local, resolve_model
from limbeck.training.development import measure_tasks
from limbeck.training.run import Run
from limbeck.training.stage import label_kind


def evaluate_student(run: Run, report: Report = no_progress) -> dict[str, Any]:
    """Measure the saved student, as anyone would load it, beside the teacher, both in float32.

    Args:
        run: With its student saved.
        report: Receives progress.
    """
    spec = run.plan.recipe.evaluation
    teacher: PreTrainedModel = run.load_teacher()
    student = load_model(str(run.student_folder))
    located = resolve_model(run.plan.recipe.teacher.model)
    documents = run.corpora[0].held_out_documents() if run.corpora else []
    held_out = [(document.title, document.body) if document.title else document.text for document in documents]
    pooling, student_pooling = run.plan.vectors_of_both(run.student_folder)
    comparison = compare_models(
        teacher,
        student,
        run.tokenizer,
        held_out,
        pooling=pooling,
        student_pooling=student_pooling,
        asymmetric=bool(run.plan.vector_stages),
        widths=[width for choice in run.plan.vector_stages for width in choice.spec.method.get("truncate") or ()],
        max_length=spec.length,
        pairs=spec.pairs if spec.quality else 0,
        # Labelled rows have no titles to find them by.
        retrieval_pairs=spec.retrieval_pairs if spec.quality and not _reads_rows_first(run) else 0,
        latency_batch_sizes=spec.batch_sizes,
        latency_length=spec.length,
        latency_seconds=spec.latency_seconds if spec.speed else 0.0,
        seed=run.plan.recipe.seed,
        teacher_folder=located if is_local(located) else None,
        student_folder=run.student_folder,
        report=report,
    )
    development = measure_tasks(run.plan, run.tokenizer, run.student_folder, run.load_teacher)
    found = {"development": [figures.to_dict() for figures in development]} if development else {}
    return comparison.to_dict() | (found or _score_task(run))


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
    teacher = run.load_teacher(choice.teacher, head=choice.teacher_head) if choice.teacher_head is not None else None
    student = load_model(str(run.student_folder), head=choice.student_head)
    collate = PadCollator(run.tokenizer.pad_token_id, side=run.tokenizer.padding_side, labels=label_kind(choice))
    try:
        scores = measure_task(teacher, student, corpus.held_out, collate, choice.pairing.task)
        return {"task": {**scores.to_dict(), "stage": choice.spec.title, "teacher_name": choice.teacher.title}}
    except LimbeckError as error:
        return {"task": {"unavailable": str(error)}}


def _reads_rows_first(run: Run) -> bool:
    return bool(run.corpora) and isinstance(run.corpora[0], LabelledCorpus)
