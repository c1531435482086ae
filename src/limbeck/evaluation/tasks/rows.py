"""Rows of tables and of SQuAD's JSON to rows of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from limbeck.corpus.documents import SourceReport
from limbeck.corpus.labelled import is_missing
from limbeck.corpus.readers import PlacedRow, list_columns
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.definition import Columns
from limbeck.evaluation.tasks.labels import label_reader
from limbeck.evaluation.tasks.task import SplitFacts, Task, TaskRow

_SHOWN_CHARACTERS = 40
NO_PLACE = -1
"""The `answer_start` of an answer that its context does not hold."""


def read_task_rows(
    placed: Iterable[PlacedRow], task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> list[TaskRow]:
    """Return the rows of a split, in the order of the source.

    Args:
        placed: The source's rows.
        task: Decides what a row must have.
        facts: Of the split: whether it is labelled, and its language.
        columns: Where text, label and answers stand.
        report: Receives the rows that are left out and the answers that are moved.

    Raises:
        CorpusError: if a row lacks a column or a label, has a label that is none of the task's, or an id of another.
    """
    rows: list[TaskRow] = []
    if task.kind == "question_answering":
        ids: set[str] = set()
        for row in placed:
            question = _question_row(row, len(rows), task, facts, columns, report)
            if question.id in ids:
                raise CorpusError(f"{row.where} has the id '{question.id}' of an earlier question: give each its own.")
            ids.add(question.id)
            rows.append(question)
        return rows
    read = _sequence_reader(task, facts, columns, report)
    for row in placed:
        sequence = read(row, len(rows))
        if sequence is not None:
            rows.append(sequence)
    return rows


def _sequence_reader(
    task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> Callable[[PlacedRow, int], TaskRow | None]:
    read_label = label_reader(task)
    column = columns.label if facts.labelled else None

    def read(row: PlacedRow, number: int) -> TaskRow | None:
        text = _text(row, columns.text)
        pair = None if columns.pair is None else _text(row, columns.pair)
        label = None
        if column is not None:
            _require(row, column)
            label = read_label(row, column)
            if label is None:
                report.note("row on whose class the annotators did not agree, left out", row.where)
                return None
        return TaskRow(_row_id(row, columns, number), text, pair, label, language=facts.language)

    return read


def _question_row(
    row: PlacedRow, number: int, task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> TaskRow:
    if columns.pair is None:
        raise CorpusError(f"The task '{task.name}' names no column for the question.")
    context, question = _text(row, columns.text), _text(row, columns.pair)
    row_id = _row_id(row, columns, number)
    if not facts.labelled:
        return TaskRow(row_id, context, question, language=facts.language)
    _require(row, columns.answers)
    pairs = [] if row.values.get("is_impossible") else _answers(row, columns.answers)
    if not pairs and task.answerable_only:
        raise CorpusError(f"{row.where} has no answer, but every question of {task.title} has one.")
    answers = tuple(answer for answer, _ in pairs)
    starts = tuple(_place(context, answer, start, row.where, report) for answer, start in pairs)
    return TaskRow(row_id, context, question, answers=answers, answer_starts=starts, language=facts.language)


def _answers(row: PlacedRow, column: str) -> list[tuple[str, int]]:
    """Texts and starts, from lists side by side or from a list of answers; blank ones are none."""
    value = row.values[column]
    if is_missing(value):
        return []
    try:
        if isinstance(value, Mapping):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]
        if any(int(start) != float(start) for _, start in pairs):
            raise ValueError("not whole")
        return [(str(text), int(start)) for text, start in pairs if str(text).strip()]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"The answers of {row.where} are not as SQuAD has them: a text and an answer_start for each."
        ) from error


def _place(context: str, answer: str, start: int, where: str, report: SourceReport) -> int:
    """Return where the answer stands: at `start`, or at the nearest place where the context has it."""
    if start >= 0 and context.startswith(answer, start):
        return start
    found = context.find(answer)
    if found < 0:
        report.note("answer that its context does not hold, kept for scoring only", where)
        return NO_PLACE
    places = [found]
    while (found := context.find(answer, found + 1)) >= 0:
        places.append(found)
    report.note("answer that is not at its answer_start, taken at the nearest place", where)
    return min(places, key=lambda place: abs(place - start))


def _row_id(row: PlacedRow, columns: Columns, number: int) -> str:
    value = row.values.get(columns.id) if columns.id is not None else None
    return str(number if is_missing(value) else value)


def _text(row: PlacedRow, column: str) -> str:
    _require(row, column)
    value: Any = row.values[column]
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if value is not None and not isinstance(value, str):
        raise CorpusError(f"{row.where} has no text in its column '{column}', but {value!r}.")
    return value or ""


def _require(row: PlacedRow, column: str) -> None:
    if column not in row.values:
        # The first row of a table without a header may be whole texts.
        names = [str(name)[:_SHOWN_CHARACTERS] for name in row.values]
        raise CorpusError(f"{row.where} has no column '{column}'; it has {list_columns(names)}.")
