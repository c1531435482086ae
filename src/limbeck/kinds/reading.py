"""Fields of rows as kinds read them: of a task's splits, of which all are scored, and of a corpus, which may skip."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.files.table_files import TABLES, headless
from limbeck.corpus.messages import list_columns
from limbeck.corpus.rows.class_numbers import ClassNumbers, is_missing
from limbeck.corpus.rows.labelled_rows import LabelledRow, without_surrogates
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.documents import clean_text
from limbeck.errors import CorpusError
from limbeck.kinds.columns import Columns
from limbeck.kinds.task import SplitFacts, Task

NO_PLACE = -1
"""The `answer_start` of an answer that its context does not hold."""
UNDECIDED = "-"
"""In place of a class on which the annotators did not agree; the sources do not count such rows."""
_OTHER_SPELLINGS = {"contradictory": "contradiction"}
"""Spellings of XNLI's translated training files."""
_UNLABELLED = (-1, "-1")
"""Labels of GLUE's test files, as the Hub has them."""
_SHOWN_CHARACTERS = 40


class RowSource(ABC):
    """The rows of one source, and what becomes of those that cannot be used.

    Args:
        columns: Names of the columns.
        labels: Class names in the order of their numbers; empty where there are no classes.
        report: Receives rows that are left out.
        labelled: Whether rows have labels.
        language: Of the texts.

    Attributes:
        owner: Whose the classes are, for messages.
        answerable_only: Whether a question without an answer is refused.
    """

    owner = "the teacher's classes"
    answerable_only = False

    def __init__(
        self,
        columns: Columns,
        labels: Sequence[str],
        report: SourceReport,
        *,
        labelled: bool = True,
        language: str = "en",
    ) -> None:
        self.columns = columns
        self.labels = tuple(labels)
        self.report = report
        self.labelled = labelled
        self.language = language

    @cached_property
    def numbers(self) -> ClassNumbers:
        """The numbers of the classes.

        Raises:
            CorpusError: if there are no class names.
        """
        return ClassNumbers(self.labels, self.owner)

    @abstractmethod
    def require(self, row: PlacedRow, columns: Sequence[str]) -> None:
        """Refuse a row that lacks one of the columns.

        Raises:
            CorpusError: naming the first.
        """

    @abstractmethod
    def unlabelled(self, row: PlacedRow, column: str) -> CorpusError:
        """Return the error for a row that should have a label."""

    @abstractmethod
    def text(self, row: PlacedRow, column: str) -> str | None:
        """Return a text; None where its row is left out, which is noted."""

    @abstractmethod
    def context(self, row: PlacedRow, column: str) -> str | None:
        """Return the context of a question, in which every character keeps its place; None as for `text`."""

    @abstractmethod
    def document(self, text: str, where: str) -> str | None:
        """Return the text of a query's document; None where it is left out, which is noted."""

    @abstractmethod
    def relevance(self, value: float | None, row: PlacedRow) -> float:
        """Return the relevance of a document.

        Raises:
            CorpusError: where it is needed and unknown.
        """

    @abstractmethod
    def row_id(self, row: PlacedRow, column: str | None) -> str:
        """Return the id of a row."""

    @abstractmethod
    def answers(self, row: PlacedRow, column: str) -> list[tuple[str, int]]:
        """Return the answers of a question with their first characters.

        Raises:
            CorpusError: if they are not in the format of SQuAD.
        """

    @abstractmethod
    def place(self, context: str, answer: str, start: int, where: str) -> int | None:
        """Return the first character of an answer, `NO_PLACE` or None; None leaves the row out, which is noted."""

    def claim_id(self, row_id: str, where: str) -> None:
        """Refuse the id of an earlier question: predictions are known by it. Rows of a corpus have no ids.

        Raises:
            CorpusError: naming the id.
        """
        return

    def spelling(self, value: Any, row: PlacedRow) -> Any:
        """Return the label of a row as its classes are spelt; None leaves the row out, which is noted."""
        return value

    def is_unlabelled(self, value: Any, *, has_classes: bool) -> bool:
        """Whether the value of a label stands for none."""
        if is_missing(value):
            return True
        return has_classes and value in _UNLABELLED and value not in self.numbers


class CorpusRows(RowSource):
    """Rows of a corpus, which may leave out what it cannot use: texts are cleaned, and empty ones are noted.

    Args:
        settings: Columns and class names.
        report: Receives rows that are left out.
    """

    def __init__(self, settings: LabelledSettings, report: SourceReport) -> None:
        columns = Columns(
            text=settings.text_column,
            pair=settings.pair_column,
            label=settings.label_column,
            label_columns=tuple(settings.label_columns),
            context=settings.context_column,
            question=settings.question_column,
            answers=settings.answers_column,
            query=settings.query_column,
            documents=tuple(settings.document_columns),
            tokens=settings.tokens_column,
            tags=settings.tags_column,
        )
        super().__init__(columns, settings.labels, report)
        self._setting_of_column = settings.named_columns

    def require(self, row: PlacedRow, columns: Sequence[str]) -> None:
        """Refuse a row that lacks a column; the message names the setting that gives it."""
        for column, setting in self._setting_of_column.items():
            if column in row.values:
                continue
            if problem := headless(row):
                raise CorpusError(
                    f"{problem}; name its {len(row.values)} fields by corpus.task.columns, in their order and with "
                    f"'{column}' among them, or leave this source out."
                )
            is_table = PurePosixPath(row.where.rpartition(":")[0]).suffix in TABLES
            naming = ", name the fields by corpus.task.columns if the file has no header" if is_table else ""
            raise CorpusError(
                f"{row.where} has no column '{column}': set {setting} to one of {_shown_columns(row)}{naming}, "
                "or leave this source out."
            )

    def unlabelled(self, row: PlacedRow, column: str) -> CorpusError:
        """Return the error for a row without a label."""
        return CorpusError(
            f"{row.where} is unlabelled (its {column} is {row.values.get(column)!r}): give rows with labels, or leave "
            "out the task to distil on the text alone."
        )

    def text(self, row: PlacedRow, column: str) -> str | None:
        """Return a cleaned text; None where it is empty or no text."""
        value = row.values[column]
        if value is not None and not isinstance(value, str):
            self.report.note(f"column '{column}' that is not text", f"{row.where}, {type(value).__name__}")
            return None
        cleaned = clean_text(value or "")
        if not cleaned:
            self.report.note(f"row whose column '{column}' is empty", row.where)
            return None
        return cleaned

    def context(self, row: PlacedRow, column: str) -> str | None:
        """Return a context; None where it is empty."""
        value = row.values[column]
        if not isinstance(value, str) or not value.strip():
            self.report.note("row with an empty context", row.where)
            return None
        # Characters are only replaced one by one: the answer's place must stay.
        return without_surrogates(value)

    def document(self, text: str, where: str) -> str | None:
        """Return a cleaned document; None where it is empty."""
        cleaned = clean_text(text)
        if not cleaned:
            self.report.note("document that is empty", where)
            return None
        return cleaned

    def relevance(self, value: float | None, row: PlacedRow) -> float:
        """Return the relevance, NaN where it is unknown."""
        return math.nan if value is None else value

    def row_id(self, row: PlacedRow, column: str | None) -> str:
        """Return nothing: rows of a corpus have no ids."""
        return ""

    def answers(self, row: PlacedRow, column: str) -> list[tuple[str, int]]:
        """Return the first answer of a question, which is the one to train on."""
        if is_missing(row.values.get(column)):
            raise self.unlabelled(row, column)
        if row.values.get("is_impossible"):
            return []
        return parse_answers(row.values[column], row.where)[:1]

    def place(self, context: str, answer: str, start: int, where: str) -> int | None:
        """Return the start of an answer that stands there; other rows are left out."""
        if start >= 0 and answer and context.startswith(answer, start):
            return start
        self.report.note("answer that is not at its answer_start, dropped", where)
        return None


class SplitRows(RowSource):
    """Rows of a task's split, of which all are needed: its score would be of other rows.

    Args:
        task: The task.
        facts: Of the split: whether it is labelled, and its language.
        columns: Names of the columns.
        report: Receives answers that are moved, and rows that the source does not count itself.
    """

    def __init__(self, task: Task, facts: SplitFacts, columns: Columns, report: SourceReport) -> None:
        super().__init__(columns, task.labels, report, labelled=facts.labelled, language=facts.language)
        self.owner = f"{task.title}'s"
        self.answerable_only = task.answerable_only
        self.title = task.title
        self.count = 0
        """Rows that were read so far, by which rows without ids are numbered."""
        self._claimed: set[str] = set()

    def require(self, row: PlacedRow, columns: Sequence[str]) -> None:
        """Refuse a row that lacks a column; the message says how to name the fields."""
        for column in columns:
            if column in row.values:
                continue
            if problem := headless(row):
                raise CorpusError(
                    f"{problem}; name its {len(row.values)} fields in the task file, "
                    f"{{path: FILE, header: [{column}, …]}}, or give a file with a header."
                )
            raise CorpusError(f"{row.where} has no column '{column}'; it has {_shown_columns(row)}.")

    def unlabelled(self, row: PlacedRow, column: str) -> CorpusError:
        """Return the error for a row without a label."""
        value = row.values.get(column)
        shown = "null" if value is None else repr(value)
        return CorpusError(f"{row.where} is unlabelled (its {column} is {shown}), but the split must be labelled.")

    def text(self, row: PlacedRow, column: str) -> str | None:
        """Return a text as it is, empty where it is null; the parts of a list are joined."""
        self.require(row, [column])
        return text_of(row, column)

    def context(self, row: PlacedRow, column: str) -> str | None:
        """Return a context as it is."""
        return self.text(row, column)

    def document(self, text: str, where: str) -> str | None:
        """Return a document as it is."""
        return text

    def relevance(self, value: float | None, row: PlacedRow) -> float:
        """Return the relevance."""
        if value is None:
            raise CorpusError(
                f"{row.where} has documents without relevance: give them labels in the column '{self.columns.label}', "
                "or the relevant documents in a column before the others."
            )
        return value

    def row_id(self, row: PlacedRow, column: str | None) -> str:
        """Return the id of a row, else its number."""
        value = None if column is None else row.values.get(column)
        return str(self.count if is_missing(value) else value)

    def answers(self, row: PlacedRow, column: str) -> list[tuple[str, int]]:
        """Return all answers of a question; blank ones are none."""
        self.require(row, [column])
        if row.values.get("is_impossible") or is_missing(row.values[column]):
            pairs = []
        else:
            pairs = parse_answers(row.values[column], row.where)
        pairs = [(text, start) for text, start in pairs if text.strip()]
        if not pairs and self.answerable_only:
            raise CorpusError(f"{row.where} has no answer, but every question of {self.title} has one.")
        return pairs

    def place(self, context: str, answer: str, start: int, where: str) -> int | None:
        """Return the start of an answer, or the nearest place where the context holds it."""
        if start >= 0 and context.startswith(answer, start):
            return start
        places = [match.start() for match in re.finditer(f"(?={re.escape(answer)})", context)]
        if not places:
            self.report.note("answer that its context does not contain, kept for scoring only", where)
            return NO_PLACE
        self.report.note("answer that is not at its answer_start, taken at the nearest place", where)
        return min(places, key=lambda place: abs(place - start))

    def claim_id(self, row_id: str, where: str) -> None:
        """Refuse an id that comes twice."""
        if row_id in self._claimed:
            raise CorpusError(f"{where} has the id '{row_id}' of an earlier question: give each question its own.")
        self._claimed.add(row_id)

    def spelling(self, value: Any, row: PlacedRow) -> Any:
        """Return the class of a row in its usual spelling; None where the annotators did not agree on one."""
        if value == UNDECIDED and UNDECIDED not in self.labels:
            self.report.note("row whose class the annotators did not agree on, left out", row.where)
            return None
        return _OTHER_SPELLINGS.get(value, value) if isinstance(value, str) else value


def text_of(row: PlacedRow, column: str) -> str:
    """Return the text of a column: "" where it is null, the parts of a list joined by spaces.

    Raises:
        CorpusError: for a value that is no text.
    """
    value: Any = row.values[column]
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if value is not None and not isinstance(value, str):
        raise CorpusError(f"{row.where} has no text in its column '{column}', but {value!r}.")
    return value or ""


def parse_answers(value: Any, where: str) -> list[tuple[str, int]]:
    """Return texts and first characters of answers.

    Args:
        value: `{"text": [...], "answer_start": [...]}`, or a list of `{"text": ..., "answer_start": ...}`.
        where: Where the row stands.

    Raises:
        CorpusError: if it is neither.
    """
    try:
        if isinstance(value, Mapping):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]
        for _, start in pairs:
            if int(start) != float(start):
                raise ValueError(f"{start} is not whole")
        return [(str(text), int(start)) for text, start in pairs]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"The answers of {where} are not in the format of SQuAD: a text and an answer_start for each."
        ) from error


def text_rows(row: PlacedRow, source: RowSource, label: Any) -> list[LabelledRow]:
    """Return the row of a single text or a pair, or nothing where it is left out.

    Args:
        row: The row.
        source: Names the columns.
        label: Of the row; None where it is unlabelled.
    """
    columns = source.columns
    text = source.text(row, columns.text)
    pair = None
    if columns.pair is not None:
        pair = source.text(row, columns.pair)
        if pair is None:
            return []
    if text is None:
        return []
    return [LabelledRow(source.row_id(row, columns.id), text, pair, label, language=source.language)]


def _shown_columns(row: PlacedRow) -> str:
    # The first row of a table without a header may be whole texts.
    return list_columns([str(name)[:_SHOWN_CHARACTERS] for name in row.values])
