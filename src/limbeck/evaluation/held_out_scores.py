"""`measure_task`: scores of teacher and student on the held-out labelled rows of a run's corpus."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.core import records
from limbeck.core.blocks import counted
from limbeck.core.progress import Count, Report, named, no_progress
from limbeck.corpus.batches.batch import LABELS, Batch, read_batch
from limbeck.errors import CorpusError
from limbeck.evaluation.best_figures import best_scores, highest, name_of_start
from limbeck.kinds.kind import HeldOutRows, Kind
from limbeck.kinds.registry import KINDS
from limbeck.models import families, inference, streams, taps

FEWEST_ROWS = 2
"""Fewest held-out rows that are scored."""


class _ReadRows(NamedTuple):
    """Held-out rows as both models read them.

    Attributes:
        batches: The inputs of the two models.
        labels: The labels of each batch; empty where the rows have none.
        groups: The number of the group of each prediction, see `HeldOutRows`.
    """

    batches: list[Batch]
    labels: list[Tensor]
    groups: NDArray[np.int64]


class _Answers(NamedTuple):
    """Predictions of several models for the same held-out rows, in the form of the labels.

    Attributes:
        student: The student's.
        teacher: The teacher's; None without a teacher.
        starts: Those of each untrained student.
    """

    student: NDArray[Any]
    teacher: NDArray[Any] | None
    starts: list[NDArray[Any]]


def measure_task(
    teacher: PreTrainedModel | None,
    student: PreTrainedModel,
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    task: str,
    *,
    starts: Sequence[PreTrainedModel] = (),
    labelled: bool = True,
    batch_size: int = 32,
    report: Report = no_progress,
) -> records.TaskFigures:
    """Score teacher and student on rows of a task, by the kind's metric of held-out rows.

    Rows without labels give the agreement of the two models alone: the student's score with the teacher's answers as
    labels.

    Args:
        teacher: The teacher with the head of the task; None scores the student alone.
        student: The student with the head of the task.
        rows: Held-out rows.
        collate: Function that makes a batch of rows.
        task: Name of a kind of task.
        starts: Untrained students with that head, of which the best scores count.
        labelled: Whether the rows have labels.
        batch_size: Rows a forward pass.
        report: Receives the progress, with a part for each model.

    Raises:
        CorpusError: if there are fewer than 2 rows.
    """
    if len(rows) < FEWEST_ROWS:
        raise CorpusError(
            f"{counted(len(rows), 'row')} held out, which are too few to score; give corpus.development, or raise "
            "corpus.held_out."
        )
    kind = KINDS[task]
    read = _read_rows(rows, collate, kind, batch_size)
    held_out = HeldOutRows(read.groups, _classes_of(student, kind))

    # The untrained students read what the student reads.
    student_batches = [batch.student for batch in read.batches]
    report_student = named(report, "scoring held-out rows, the student")
    student_predictions = _predict(student, student_batches, kind, report_student)
    gives_one_answer = len(student_predictions.unique(dim=0)) == 1
    student_answers = student_predictions.numpy()
    figures = records.TaskFigures(
        task=task,
        metric=kind.held_out_metric,
        rows=len(rows),
        # Records have the field only where it is true.
        only_answer=gives_one_answer or None,
    )
    if kind.facts.has_queries:
        figures.queries = len(np.unique(held_out.groups))

    # The answers of the students are compared with the teacher's, which need no labels.
    teacher_answers = None
    if teacher is not None:
        teacher_batches = [batch.teacher for batch in read.batches]
        report_teacher = named(report, "scoring held-out rows, the teacher")
        teacher_answers = _predict(teacher, teacher_batches, kind, report_teacher).numpy()
        _note_agreement(figures, kind, student_answers, teacher_answers, held_out)
    answers_of_starts = []
    for number, start in enumerate(starts, start=1):
        report_start = named(report, f"scoring held-out rows, {name_of_start(number, len(starts))}")
        answers_of_start = _predict(start, student_batches, kind, report_start)
        answers_of_starts.append(answers_of_start.numpy())
    if teacher_answers is not None:
        agreements = [kind.held_out_agreement(answers, teacher_answers, held_out) for answers in answers_of_starts]
        figures.start_agreement = highest(agreement.value for agreement in agreements)

    # The answers of all models are compared with the labels.
    if not labelled:
        figures.labelled = False
        return figures
    labels = torch.cat(read.labels).numpy()
    _note_scores(figures, kind, _Answers(student_answers, teacher_answers, answers_of_starts), labels, held_out)
    return figures


def _read_rows(
    rows: Any,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]],
    kind: Kind,
    batch_size: int,
) -> _ReadRows:
    """Divide held-out rows into batches, and take the labels out of them.

    Args:
        rows: The rows.
        collate: Function that makes a batch of rows.
        kind: The kind of their task.
        batch_size: Rows of a batch.
    """
    batches: list[Batch] = []
    labels_of_batches: list[Tensor] = []
    groups_of_batches: list[NDArray[np.int64]] = []
    for first in range(0, len(rows), batch_size):
        end = min(first + batch_size, len(rows))
        rows_of_batch = [rows[index] for index in range(first, end)]
        columns = collate(rows_of_batch)
        # `held_out_labels` also removes the labels from the columns, which the models must not read. Rows of words have
        # the column even without labels, since it marks the tokens that are scored.
        if LABELS in columns:
            labels_of_batches.append(kind.held_out_labels(columns))
        groups_of_batches.append(kind.held_out_groups(rows_of_batch, columns, first=first))
        batches.append(read_batch(columns))
    return _ReadRows(batches, labels_of_batches, np.concatenate(groups_of_batches))


def _note_agreement(
    figures: records.TaskFigures,
    kind: Kind,
    student: NDArray[Any],
    teacher: NDArray[Any],
    held_out: HeldOutRows,
) -> None:
    """Add the agreement of student and teacher to the figures, with its metric and its interval.

    Args:
        figures: The figures.
        kind: The kind of the task.
        student: The student's predictions.
        teacher: The teacher's.
        held_out: The groups and the classes of the predictions.
    """
    agreement = kind.held_out_agreement(student, teacher, held_out)
    figures.metric = agreement.metric
    figures.agreement = agreement.value
    interval = kind.held_out_agreement_interval(student, teacher, held_out)
    # Records have the field only where there is an interval.
    if interval is not None:
        figures.agreement_interval = list(interval)


def _note_scores(
    figures: records.TaskFigures,
    kind: Kind,
    answers: _Answers,
    labels: NDArray[Any],
    held_out: HeldOutRows,
) -> None:
    """Add the scores by labels to the figures: of student and teacher, of the untrained students, and at chance.

    Args:
        figures: The figures, which may have an agreement.
        kind: The kind of the task.
        answers: The predictions of the models.
        labels: The labels.
        held_out: The groups and the classes of the predictions.
    """
    main, *further = _scores_of_both(kind, answers.student, answers.teacher, labels, held_out)
    # `metric` was that of the agreement, which keeps its name where it is another one.
    if answers.teacher is not None and main.metric != figures.metric:
        figures.agreement_metric = figures.metric
    figures.metric = main.metric
    figures.student = main.student
    figures.teacher = main.teacher
    figures.further = further

    intervals = kind.held_out_intervals(answers.student, labels, held_out)
    figures.intervals = {metric: list(ends) for metric, ends in intervals.items()}
    scores_of_starts = []
    for answers_of_start in answers.starts:
        scores = kind.held_out_scores(answers_of_start, labels, held_out)
        scores_of_starts.append({score.metric: score.value for score in scores})
    figures.start = best_scores(scores_of_starts)
    figures.chance = dict(kind.held_out_chance(labels, held_out))


def _scores_of_both(
    kind: Kind, student: NDArray[Any], teacher: NDArray[Any] | None, labels: NDArray[Any], rows: HeldOutRows
) -> list[records.MetricScores]:
    """Return the scores of both models by each metric of the kind, the main one first.

    Args:
        kind: The kind of the task.
        student: The student's predictions.
        teacher: The teacher's; None without a teacher.
        labels: The labels.
        rows: The groups and the classes of the predictions.
    """
    scores_of_student = kind.held_out_scores(student, labels, rows)
    scores = [records.MetricScores(metric=score.metric, student=score.value) for score in scores_of_student]
    if teacher is not None:
        for score_of_both, score in zip(scores, kind.held_out_scores(teacher, labels, rows), strict=True):
            score_of_both.teacher = score.value
    return scores


def _classes_of(model: PreTrainedModel, kind: Kind) -> tuple[str, ...]:
    """Return the names of the classes that a head predicts, in the order of its outputs; none without classes."""
    if not kind.facts.has_classes:
        return ()
    names = model.config.id2label
    return tuple(names[number] for number in sorted(names))


@torch.no_grad()
def _predict(model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], kind: Kind, report: Report) -> Tensor:
    """Return what a head predicts of all rows, in the form of their labels, on the CPU.

    Args:
        model: The model with the head.
        batches: What the model reads.
        kind: The kind of the task.
        report: Receives the progress.
    """
    key = streams.StreamKey("logits", families.depth(model.config))
    device = inference.device_of(model)
    was_training = model.training
    answers = []
    rows = sum(_rows_of(batch) for batch in batches)
    rows_done = 0
    with taps.StreamTap(model.eval(), [key]) as tap:
        for batch in batches:
            inputs = {name: tensor.to(device) for name, tensor in batch.items()}
            logits = tap(**inputs)[key]
            answers.append(kind.held_out_predictions(logits.float().cpu()))
            rows_done += _rows_of(batch)
            report(rows_done / rows, "", Count(rows_done, "rows", rows))
    model.train(was_training)
    return torch.cat(answers)


def _rows_of(batch: Mapping[str, Tensor]) -> int:
    """Return the number of rows of a batch."""
    return len(next(iter(batch.values())))
