"""Rows of a corpus as kinds read them: texts are cleaned, and rows that cannot be trained on are left out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from limbeck.corpus.files.file_kinds import PlacedRow, suffix_of
from limbeck.corpus.files.table_files import TABLES, missing_header
from limbeck.corpus.rows.class_numbers import is_missing
from limbeck.corpus.rows.labelled_rows import without_surrogates
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.documents import clean_text
from limbeck.errors import CorpusError
from limbeck.kinds.columns import Columns
from limbeck.kinds.reading import RowSource
from limbeck.kinds.row_values import describe_columns, parse_answers


class CorpusRows(RowSource):
    """Rows of a corpus.

    Args:
        settings: Columns and class names.
        report: Receives notes on rows that are left out.
    """

    def __init__(self, settings: LabelledSettings, report: SourceReport) -> None:
        columns = Columns(
            text=settings.text_column,
            pair=settings.pair_column,
            label=settings.label_column,
            label_columns=tuple(settings.label_columns),
            label_lists=settings.label_lists,
            context=settings.context_column,
            question=settings.question_column,
            answers=settings.answers_column,
            query=settings.query_column,
            documents=tuple(settings.document_columns),
            tokens=settings.tokens_column,
            tags=settings.tags_column,
        )
        super().__init__(columns, settings.labels, report, labelled=settings.labelled)
        self._setting_of_column = settings.named_columns

    def require(self, row: PlacedRow, columns: Sequence[str]) -> None:
        """Refuse a row that lacks a column of its kind; the message says which setting names the column.

        `columns` is not read: the settings name all columns of the kind, and each of them is looked for.
        """
        for column, setting in self._setting_of_column.items():
            if column in row.values:
                continue
            problem = missing_header(row)
            if problem is not None:
                raise CorpusError(
                    f"{problem}; name its {len(row.values)} fields in their order by corpus.task.columns, one of "
                    f"them '{column}', or leave this source out."
                )
            # `where` is the file's path with the number of the line.
            path, _, _ = row.where.rpartition(":")
            way_out = ""
            if suffix_of(path) in TABLES:
                way_out = ", or name the fields by corpus.task.columns if the file has no header"
            raise CorpusError(
                f"{row.where} has no column '{column}': set {setting} to one of {describe_columns(row)}{way_out}, "
                "or leave this source out."
            )

    def unlabelled_error(self, row: PlacedRow, column: str) -> CorpusError:
        """Return the error for a row without a label."""
        return CorpusError(
            f"{row.where} is unlabelled (its {column} is {row.values.get(column)!r}): give rows with labels, or set "
            "corpus.task.labelled to false to learn from the teacher alone."
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
        # The context is not cleaned as other texts are: answers are found by the number of their first character.
        # Surrogates are replaced one by one, which moves no character.
        return without_surrogates(value)

    def document(self, text: str, where: str) -> str | None:
        """Return a cleaned document; None where it is empty."""
        cleaned = clean_text(text)
        if not cleaned:
            self.report.note("document that is empty", where)
            return None
        return cleaned

    def relevance(self, value: float | None, row: PlacedRow) -> float:
        """Return the relevance, NaN where it is unknown: a student learns the teacher's scores."""
        if value is None:
            return math.nan
        return value

    def row_id(self, row: PlacedRow, column: str | None) -> str:
        """Return an empty id, since rows of a corpus have none."""
        return ""

    def answers(self, row: PlacedRow, column: str) -> list[tuple[str, int]]:
        """Return the first answer of a question, which is the one to train on."""
        if is_missing(row.values.get(column)):
            raise self.unlabelled_error(row, column)
        # SQuAD 2.0 marks questions that their context does not answer.
        if row.values.get("is_impossible"):
            return []
        return parse_answers(row.values[column], row.where)[:1]

    def place_answer(self, context: str, answer: str, start: int, where: str) -> int | None:
        """Return the start of an answer that stands there; None, with a note, for any other."""
        if start >= 0 and answer and context.startswith(answer, start):
            return start
        self.report.note("answer that is not at its answer_start, dropped", where)
        return None
