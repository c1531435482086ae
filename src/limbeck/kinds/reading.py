"""`RowSource`, through which kinds of tasks read the fields of rows.

A kind reads two sorts of rows with the same code, and the source decides what becomes of rows that cannot be used: a
row of a corpus to train on (`limbeck.kinds.corpus_rows`) is left out, and a row of a split to score
(`limbeck.kinds.split_rows`) is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import ClassNumbers, is_missing
from limbeck.corpus.rows.labelled_rows import Label, LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.kinds.columns import Columns

NO_PLACE = -1
"""The `answer_start` of an answer that its context does not hold."""
_UNLABELLED = (-1, "-1")
"""Labels of GLUE's test files, as the Hub has them."""


class RowSource(ABC):
    """The rows of one source, and the decision on rows that cannot be used.

    A method leaves a row out by returning None, after it has noted the reason in the report. It refuses a row by
    raising an error that names the row's place.

    Args:
        columns: Names of the columns.
        labels: Class names in the order of their numbers; empty where there are no classes.
        report: Receives notes on rows that are left out.
        labelled: Whether rows have labels.
        language: The language of the texts.

    Attributes:
        owner: The owner of the classes, for messages.
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
        return ClassNumbers(self.labels, self.owner, lists=self.columns.label_lists)

    @abstractmethod
    def require(self, row: PlacedRow, columns: Sequence[str]) -> None:
        """Refuse a row that lacks one of the columns.

        Raises:
            CorpusError: naming the first.
        """

    @abstractmethod
    def unlabelled_error(self, row: PlacedRow, column: str) -> CorpusError:
        """Return the error for a row that should have a label in a column."""

    @abstractmethod
    def text(self, row: PlacedRow, column: str) -> str | None:
        """Return a text; None leaves its row out."""

    @abstractmethod
    def context(self, row: PlacedRow, column: str) -> str | None:
        """Return the context of a question, in which every character keeps its place; None leaves the row out."""

    @abstractmethod
    def document(self, text: str, where: str) -> str | None:
        """Return the text of a query's document; None leaves the document out.

        Args:
            text: The text in the row.
            where: The place of the row, for messages.
        """

    @abstractmethod
    def relevance(self, value: float | None, row: PlacedRow) -> float:
        """Return the relevance of a document.

        Args:
            value: The relevance as the row has it; None where the row does not say it.
            row: The row of the query.

        Raises:
            CorpusError: where it is needed and unknown.
        """

    @abstractmethod
    def row_id(self, row: PlacedRow, column: str | None) -> str:
        """Return the id of a row; its column is None where ids are not asked for."""

    @abstractmethod
    def answers(self, row: PlacedRow, column: str) -> list[tuple[str, int]]:
        """Return the answers of a question, each with the place of its first character in the context.

        Raises:
            CorpusError: if they are not in the format of SQuAD.
        """

    @abstractmethod
    def place_answer(self, context: str, answer: str, start: int, where: str) -> int | None:
        """Return the place of an answer's first character, `NO_PLACE` where the context does not hold the answer.

        Args:
            context: The context of the question.
            answer: The answer's text.
            start: Number of the answer's first character in the context, as the row has it.
            where: The place of the row, for messages.

        Returns:
            None leaves the row out.
        """

    def claim_id(self, row_id: str, where: str) -> None:
        """Refuse the id of an earlier question: predictions are known by it. Rows of a corpus have no ids.

        Raises:
            CorpusError: naming the id.
        """
        return

    def usual_spelling(self, label: Any, row: PlacedRow) -> Any:
        """Return the label of a row as its classes are spelt; None leaves the row out."""
        return label

    def is_unlabelled(self, label: Any, *, has_classes: bool) -> bool:
        """Whether the value in a label's column means that the row has no label."""
        if is_missing(label):
            return True
        # Some sources give unlabelled rows the number -1, which is a label only if a class has that name.
        return has_classes and label in _UNLABELLED and label not in self.numbers


def text_rows(row: PlacedRow, source: RowSource, label: Label | None) -> list[LabelledRow]:
    """Return the labelled row of a single text or a pair, or nothing where it is left out.

    Args:
        row: The row.
        source: Names the columns.
        label: The label of the row; None where it is unlabelled.
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
