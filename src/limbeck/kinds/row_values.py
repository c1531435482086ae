"""Values of a row's columns: its text, its answers, and the names of its columns for messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.messages import list_columns
from limbeck.errors import CorpusError

_SHOWN_CHARACTERS = 40
"""Characters of a column's name in a message: the first row of a table without a header may be whole texts."""


def text_of(row: PlacedRow, column: str) -> str:
    """Return the text in a column. A null value gives "", and the parts of a list are joined by spaces.

    Raises:
        CorpusError: for a value that is no text.
    """
    value: Any = row.values[column]
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value)
    if not isinstance(value, str):
        raise CorpusError(f"{row.where} has no text in its column '{column}', but {value!r}.")
    return value


def parse_answers(value: Any, where: str) -> list[tuple[str, int]]:
    """Return the answers of a question, each with the place of its first character in the context.

    Args:
        value: `{"text": [...], "answer_start": [...]}`, or a list of `{"text": ..., "answer_start": ...}`.
        where: The place of the row, for messages.

    Raises:
        CorpusError: if it is neither.
    """
    try:
        if isinstance(value, Mapping):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]

        answers = []
        for text, start in pairs:
            if int(start) != float(start):
                raise ValueError(f"{start} is not whole")
            answers.append((str(text), int(start)))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"The answers of {where} are not in the format of SQuAD, in which an answer has a 'text' and an "
            "'answer_start'."
        ) from error
    return answers


def describe_columns(row: PlacedRow) -> str:
    """Name the columns of a row, for a message."""
    return list_columns([str(name)[:_SHOWN_CHARACTERS] for name in row.values])
