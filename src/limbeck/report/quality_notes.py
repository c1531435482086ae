"""The notes below the table of teacher and student: how the figures were measured, and why some are missing."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from limbeck.core import timing
from limbeck.core.blocks import counted
from limbeck.core.records import BatchLatency, DevelopmentFigures, RunEvaluation, TaskFigures
from limbeck.report.scored_rows import DEVELOPMENT, one_answer_line, rows_title

Measured: TypeAlias = Mapping[str, Any] | RunEvaluation
"""A teacher beside its student: as a record has them, or as `limbeck.evaluation.Comparison.to_dict` gives them."""
_FEW_ROWS = 100
"""Below this number of rows, scores are called rough."""
_UNSTEADY = 1.5
"""Ratio of the 90th to the 10th percentile of times above which a machine counts as busy; it is about 1.1 on an idle
machine."""


def comparison_notes(comparison: Measured) -> list[str]:
    """Return the lines that belong below the table: how it was measured, and why figures are missing."""
    evaluation = RunEvaluation.read(comparison)
    return [
        *_latency_notes(evaluation),
        *_text_notes(evaluation),
        *_interval_notes(evaluation),
        *_vector_notes(evaluation),
        *_development_notes(evaluation),
        *_missing_notes(evaluation),
    ]


def _latency_notes(evaluation: RunEvaluation) -> Iterator[str]:
    latency = evaluation.latency
    if latency is None:
        return
    conditions = f"{latency.length} tokens, {latency.dtype}, {latency.device}"
    if latency.threads is not None:
        conditions += f", {counted(latency.threads, 'thread')}"
    yield f"Latency: {conditions}, models measured alternately."
    if any(_is_unsteady(batch) for batch in latency.batches):
        yield "The machine was busy: speedups compare neighbouring passes and are more reliable than the times."


def _is_unsteady(batch: BatchLatency) -> bool:
    """Return whether the machine was busy: the times of a model spread widely, or a speedup is doubtful.

    A speedup is doubtful if it differs from the ratio of the two medians.
    """
    for times in (batch.teacher, batch.student):
        if times.p10_ms is None or times.p90_ms is None:
            continue
        if times.p90_ms > _UNSTEADY * times.p10_ms:
            return True
    # Of the whole models, then of their Transformer blocks.
    if timing.is_doubtful(batch.teacher.median_ms, batch.student.median_ms, batch.speedup, batch.rounds):
        return True
    teacher_ms = batch.teacher_transformer.median_ms
    student_ms = batch.student_transformer.median_ms
    return timing.is_doubtful(teacher_ms, student_ms, batch.transformer_speedup, batch.rounds)


def _text_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the notes on figures of held-out text and held-out rows."""
    if evaluation.agreement is not None:
        pairs = counted(evaluation.agreement.pairs or 0, "pair")
        yield f"Agreement: with the teacher's similarities on {pairs} of held-out sentences."
    task = evaluation.task
    if task is not None and task.rows is not None:
        note = f"Task: {counted(task.rows, 'row')} held out from the training files of stage '{task.stage}'"
        if task.rows < _FEW_ROWS:
            note += ": few, so the scores are rough"
        if task.labelled is False:
            note += "; the rows have no labels, so the student is compared with the teacher alone"
        # The teacher is named only if its scores stand beside the student's.
        if task.teacher_name and task.teacher is not None:
            note += f"; the teacher is '{task.teacher_name}'"
        yield f"{note}. To score the task, give development rows (corpus.development)."
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.pool is not None:
        yield f"Retrieval: each held-out summary is used to find its body among {retrieval.pool:.0f}."


def _interval_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield a note on the samples behind the 95 % intervals."""
    samples = []
    if evaluation.agreement is not None and evaluation.agreement.interval:
        samples.append(f"agreement over {counted(evaluation.agreement.documents or 0, 'document')}")
    retrieval = evaluation.student.retrieval
    if retrieval is not None and retrieval.interval:
        samples.append(f"retrieval over {retrieval.pool or 0:,.0f} summaries")
    if any(scores.intervals for scores in evaluation.development):
        samples.append("scores over development rows")
    if samples:
        yield f"95 % intervals of the student's figures: {', '.join(samples)}; one training run, one seed."


def _vector_notes(evaluation: RunEvaluation) -> Iterator[str]:
    if evaluation.asymmetric is not None:
        yield "In the teacher's documents: summaries are encoded by the student, bodies by the teacher."
    if evaluation.cut:
        yield "Components: the first ones of both models' vectors; agreement is with the teacher's full vectors."
    for role, model in (("teacher", evaluation.teacher), ("student", evaluation.student)):
        if model.megabytes_of == "tensors":
            yield f"Weights: the {role}'s size is measured in memory, not on disk."


def _development_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield notes on the development rows of each task.

    They are the number of rows, or the reason why there are no scores, and a warning if the student gives all rows one
    answer.
    """
    for scores in evaluation.development:
        if scores.unavailable is not None:
            yield f"No scores on {scores.task}: {scores.unavailable}"
        elif scores.rows is not None:
            yield _scored_rows_note(scores, row_count=scores.rows)
        warning = one_answer_line(scores)
        if warning is not None:
            yield warning


def _scored_rows_note(scores: DevelopmentFigures, row_count: float) -> str:
    """Return the note on the number and the source of the rows of a task, and its teacher."""
    # Rows that a recipe gives by a file have the task name "development", and the file's name as their split, which
    # older records lack. Other rows are named by their task.
    has_title = scores.task != DEVELOPMENT or scores.split
    if has_title:
        rows_phrase = f"the {counted(row_count, 'row')} of {rows_title(scores)}"
    else:
        rows_phrase = counted(row_count, "development row")
    note = f"Scored on {rows_phrase}, without fine-tuning"
    if row_count < _FEW_ROWS:
        note += " (few, so the scores are rough)"
    if scores.teacher_name:
        note += f"; teacher: {scores.teacher_name}"
    return f"{note}."


def _missing_notes(evaluation: RunEvaluation) -> Iterator[str]:
    """Yield the notes on figures that are meaningless or missing."""
    task = evaluation.task or TaskFigures()
    if task.only_answer:
        yield f"The student gives every row of stage '{task.stage}' the same answer, so its agreement is meaningless."
    if task.unavailable is not None:
        yield f"No task scores: {task.unavailable}"
    for figure, reason in evaluation.unavailable.items():
        yield f"No {figure}: {_after_colon(reason)}"


def _after_colon(sentence: str) -> str:
    """Return a sentence with a small first letter, unless its first word is an abbreviation or a name like `GPU`."""
    first_word = sentence.partition(" ")[0]
    if not first_word[1:].islower():
        return sentence
    return sentence[:1].lower() + sentence[1:]
