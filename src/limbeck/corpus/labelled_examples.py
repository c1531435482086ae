"""`Example`: what a labelled row says, checked: its texts, and a class, a value, or where the answer stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from limbeck.corpus.document import clean_text
from limbeck.corpus.labelled_classes import ClassNumbers, is_missing, parse_value
from limbeck.corpus.labelled_settings import LabelledSettings
from limbeck.corpus.parquet import list_columns
from limbeck.corpus.rows import PlacedRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

NO_ANSWER = (-1, -1)
"""Label of a question that its context does not answer."""

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SHOWN_CHARACTERS = 40


class Example(NamedTuple):
    """One labelled row.

    Args:
        text: The text, or the context.
        pair: The second text, or the question; `None` for tasks on single texts.
        label: Number of the class, value, or the answer's characters in `text` (first, after last); see `NO_ANSWER`.
    """

    text: str
    pair: str | None
    label: int | float | tuple[int, int]


ExampleReader: TypeAlias = Callable[[PlacedRow, SourceReport], Example | None]


def example_reader(settings: LabelledSettings) -> ExampleReader:
    """Return the function that reads an example from a row; it gives `None` for a row that it passes over and notes.

    Args:
        settings: Task, columns and class names.

    Raises:
        CorpusError: if class names are needed and missing; and by the function, if a row lacks a column or is
            unlabelled, or its label is none of the task's.
    """
    columns = settings.columns
    if settings.task == "question_answering":
        return lambda row, report: _read_question(_complete(row, columns), settings, report)
    parse = _class_parser(settings) if settings.task == "classification" else _parse_value
    return lambda row, report: _read_sequence(_complete(row, columns), settings, parse, report)


def _complete(row: PlacedRow, columns: Mapping[str, str]) -> PlacedRow:
    for column, setting in columns.items():
        if column not in row.values:
            # The first row of a table without a header may be whole texts.
            names = [str(name)[:_SHOWN_CHARACTERS] for name in row.values]
            raise CorpusError(
                f"{row.where} has no column '{column}': set {setting} to one of {list_columns(names)}, or leave out "
                f"that source."
            )
    return row


def _read_sequence(
    row: PlacedRow, settings: LabelledSettings, parse: Callable[[PlacedRow, str], int | float], report: SourceReport
) -> Example | None:
    label = parse(row, settings.label_column)
    text = _text(row, settings.text_column, report)
    pair = None if settings.pair_column is None else _text(row, settings.pair_column, report)
    if text is None or (pair is None and settings.pair_column is not None):
        return None
    return Example(text, pair, label)


def _class_parser(settings: LabelledSettings) -> Callable[[PlacedRow, str], int]:
    numbers = ClassNumbers(settings.labels)

    def parse(row: PlacedRow, column: str) -> int:
        value = row.values[column]
        # GLUE's test files, as the Hub has them, are labelled -1.
        if is_missing(value) or (value in (-1, "-1") and value not in numbers):
            raise _unlabelled(row, column)
        return numbers.number(value, row.where, row.class_names.get(column, ()))

    return parse


def _parse_value(row: PlacedRow, column: str) -> float:
    if is_missing(row.values[column]):
        raise _unlabelled(row, column)
    return parse_value(row.values[column], row.where)


def _read_question(row: PlacedRow, settings: LabelledSettings, report: SourceReport) -> Example | None:
    answers = row.values[settings.answers_column]
    if is_missing(answers):
        raise _unlabelled(row, settings.answers_column)
    context = row.values[settings.context_column]
    question = _text(row, settings.question_column, report)
    if not isinstance(context, str) or not context.strip():
        report.note("row with an empty context", row.where)
        return None
    if question is None:
        return None
    label = NO_ANSWER
    answer = None if row.values.get("is_impossible") else _first_answer(answers, row.where)
    if answer is not None:
        text, start = answer
        label = (start, start + len(text))
        if start < 0 or not text or context[start : label[1]] != text:
            report.note("answer that is not at its answer_start, dropped", row.where)
            return None
    # Characters are only replaced one by one: the answer's place must stay.
    return Example(_LONE_SURROGATE.sub("\ufffd", context), question, label)


def _whole(value: Any) -> int:
    """Return a whole number that is one; `int` alone would cut 4.7 to 4."""
    if int(value) != float(value):
        raise ValueError(value)
    return int(value)


def _first_answer(answers: Any, where: str) -> tuple[str, int] | None:
    """Return text and start of the first answer; `None` if there is none.

    Args:
        answers: `{"text": [...], "answer_start": [...]}`, or a list of `{"text": ..., "answer_start": ...}`.
        where: Where the row stands.
    """
    try:
        if isinstance(answers, Mapping):
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in answers]
        return (str(pairs[0][0]), _whole(pairs[0][1])) if pairs else None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"The answers of {where} are not as SQuAD has them: a text and an answer_start for each."
        ) from error


def _text(row: PlacedRow, column: str, report: SourceReport) -> str | None:
    value = row.values[column]
    if value is not None and not isinstance(value, str):
        report.note(f"column '{column}' that is not text", f"{row.where}, {type(value).__name__}")
        return None
    cleaned = clean_text(value or "")
    if not cleaned:
        report.note(f"row whose column '{column}' is empty", row.where)
    return cleaned or None


def _unlabelled(row: PlacedRow, column: str) -> CorpusError:
    return CorpusError(
        f"{row.where} is unlabelled (its {column} is {row.values[column]!r}): give rows with labels, or leave out the "
        f"task to distil on the text alone."
    )
