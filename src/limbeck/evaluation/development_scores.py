"""`compare_outputs`: scores of teacher and student on development rows, and the rows on which they disagree."""

from collections.abc import Sequence

import numpy as np

from limbeck.core import records
from limbeck.evaluation.best_figures import best_scores
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.kinds.beside_teacher import Disagreements
from limbeck.kinds.kind import Outputs
from limbeck.kinds.ranking_scores import queries_of
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import chance_of, intervals_of, only_answer, score

_EXAMPLES = 10
"""Rows that are shown of those on which the models disagree."""
_MOST_LETTERS = 300


def compare_outputs(
    prepared: PreparedTask,
    split: str,
    student: Outputs,
    teacher: Outputs | None = None,
    *,
    starts: Sequence[Outputs] = (),
) -> records.DevelopmentFigures:
    """Score a student and its teacher on a split by the outputs of their heads, and find where they disagree.

    Args:
        prepared: The task.
        split: A labelled split of it.
        student: The outputs of the student's head, as `read_outputs` returns them, with classes in the task's order.
        teacher: The outputs of the teacher's head; None scores the student alone.
        starts: The outputs of the heads of untrained students, of which the best scores count.

    Returns:
        The figures. The caller adds the names of the models and the stage of the run.
    """
    task = prepared.task
    kind = KINDS[task.kind]
    rows = prepared.rows[split]
    student_answers = prepared.decode(split, student)
    student_scores = score(task, split, rows, student_answers)
    figures = records.DevelopmentFigures(task=task.name, kind=task.kind, split=split, rows=len(rows))
    if kind.facts.has_queries:
        figures.queries = len(queries_of(rows))
    figures.student = dict(student_scores)
    if task.positive is not None:
        figures.positive = task.positive
    figures.intervals = dict(intervals_of(student_scores, task, rows, student_answers))
    figures.chance = dict(chance_of(task, rows))
    figures.only_answer = only_answer(task, student_answers)

    if starts:
        figures.start = best_scores([score(task, split, rows, prepared.decode(split, start)) for start in starts])

    # The teacher's scores, and the rows on which the two models differ. Kinds without a measure of that have none.
    answers = [student_answers]
    if teacher is not None:
        teacher_answers = prepared.decode(split, teacher)
        answers.append(teacher_answers)
        teacher_scores = score(task, split, rows, teacher_answers)
        figures.teacher = dict(teacher_scores)
        figures.teacher_intervals = dict(intervals_of(teacher_scores, task, rows, teacher_answers))
        disagreements = kind.disagreements(rows, (student_answers, teacher_answers), (student, teacher), task)
        if disagreements is not None:
            if disagreements.are_counted:
                figures.disagreements = int(disagreements.differ.sum())
            figures.examples = _examples(prepared, split, disagreements)

    # Each class by itself, where there are classes.
    classes = kind.class_figures(rows, answers, task)
    if classes is not None:
        figures.by_label = classes.by_label
        if classes.confusion:
            figures.labels = classes.labels
            figures.confusion = [list(counts) for counts in classes.confusion]
    return figures


def _examples(prepared: PreparedTask, split: str, disagreements: Disagreements) -> list[records.Disagreement]:
    """Return the rows on which student and teacher are furthest apart, the furthest first."""
    task = prepared.task
    kind = KINDS[task.kind]
    rows = prepared.rows[split]
    furthest_first = np.argsort(-disagreements.distances, kind="stable")
    differing = [int(index) for index in furthest_first if disagreements.differ[index]]
    examples = []
    for index in differing[:_EXAMPLES]:
        row = rows[index]
        examples.append(
            records.Disagreement(
                text=_cut(kind.plain_text(row.text)),
                pair=_cut(row.pair or ""),
                label=_cut(kind.label_words(row, task)),
                student=_cut(disagreements.student[index]),
                teacher=_cut(disagreements.teacher[index]),
                distance=round(float(disagreements.distances[index]), 6),
            )
        )
    return examples


def _cut(text: str) -> str:
    """Return a text, or its beginning where it is long."""
    if len(text) <= _MOST_LETTERS:
        return text
    return f"{text[:_MOST_LETTERS]}…"
