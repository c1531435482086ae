"""Rows of a task's split as kinds read them: all are needed, since its score would be of other rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.core.kinds import kind_of
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.files.table_files import missing_header
from limbeck.corpus.rows.class_numbers import is_missing
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.kinds.columns import Columns
from limbeck.kinds.reading import NO_PLACE, RowSource
from limbeck.kinds.row_values import describe_columns, parse_answers, text_of
from limbeck.kinds.task import SplitFacts, Task

UNDECIDED = "-"
"""The label of rows on whose class the annotators did not agree; the published numbers of rows leave them out."""
_USUAL_SPELLINGS = {"contradictory": "contradiction"}
"""The usual spelling of a class in XNLI's translated training files."""


class SplitRows(RowSource):
    """Rows of a task's split.

    Args:
        task: The task.
        facts: The facts of the split: whether it is labelled, and its language.
        columns: Names of the columns.
        report: Receives answers that are moved, and rows that the source does not count itself.
        columns_of_recipe: Whether a recipe names the columns, as it names those of the rows to train on.

    Attributes:
        count: Rows that were read so far, by which rows without ids are numbered. Who reads the rows sets it.
    """

    def __init__(
        self,
        task: Task,
        facts: SplitFacts,
        columns: Columns,
        report: SourceReport,
        *,
        columns_of_recipe: bool = False,
    ) -> None:
        super().__init__(columns, task.labels, report, labelled=facts.labelled, language=facts.language)
        self.owner = f"{task.title}'s"
        self.answerable_only = task.answerable_only
        self.title = task.title
        self.count = 0
        self._ids: set[str] = set()
        self._setting_of_column: dict[str, str] = {}
        if columns_of_recipe:
            self._setting_of_column = _settings_of_columns(task.kind, columns)

    def require(self, row: PlacedRow, columns: Sequence[str]) -> None:
        """Refuse a row that lacks a column, see `require_columns`."""
        require_columns(row, columns, self._setting_of_column)

    def unlabelled_error(self, row: PlacedRow, column: str) -> CorpusError:
        """Return the error for a row without a label."""
        value = row.values.get(column)
        shown = "null" if value is None else repr(value)
        return CorpusError(f"{row.where} is unlabelled (its {column} is {shown}), but the split must be labelled.")

    def text(self, row: PlacedRow, column: str) -> str | None:
        """Return a text as it is, which may be empty; the parts of a list are joined.

        Raises:
            CorpusError: where it is null: a model that reads "" for it would be scored on another row.
        """
        require_columns(row, [column], self._setting_of_column)
        if row.values[column] is None:
            raise CorpusError(
                f"{row.where} has no text in its column '{column}', but null: write the text, or leave out the row."
            )
        return text_of(row, column)

    def context(self, row: PlacedRow, column: str) -> str | None:
        """Return a context as it is."""
        return self.text(row, column)

    def document(self, text: str, where: str) -> str | None:
        """Return a document as it is."""
        return text

    def relevance(self, value: float | None, row: PlacedRow) -> float:
        """Return the relevance, without which a ranking cannot be scored."""
        if value is None:
            raise CorpusError(
                f"{row.where} does not say which documents are relevant: give each document a label in the column "
                f"'{self.columns.label}', or put the relevant documents into a column of their own before the "
                "others."
            )
        return value

    def row_id(self, row: PlacedRow, column: str | None) -> str:
        """Return the id of a row, or its number where it has none."""
        row_id = None if column is None else row.values.get(column)
        if is_missing(row_id):
            return str(self.count)
        return str(row_id)

    def answers(self, row: PlacedRow, column: str) -> list[tuple[str, int]]:
        """Return all answers of a question, without blank ones."""
        require_columns(row, [column], self._setting_of_column)
        answers: list[tuple[str, int]] = []
        has_answers = not row.values.get("is_impossible") and not is_missing(row.values[column])
        if has_answers:
            for text, start in parse_answers(row.values[column], row.where):
                if text.strip():
                    answers.append((text, start))
        if not answers and self.answerable_only:
            raise CorpusError(f"{row.where} has no answer, but every question of {self.title} needs one.")
        return answers

    def place_answer(self, context: str, answer: str, start: int, where: str) -> int | None:
        """Return the start of an answer, or the nearest place where the context holds it."""
        if start >= 0 and context.startswith(answer, start):
            return start
        # A lookahead finds places that overlap too.
        places = [match.start() for match in re.finditer(f"(?={re.escape(answer)})", context)]
        if not places:
            self.report.note("answer that its context does not contain, kept for scoring only", where)
            return NO_PLACE
        self.report.note("answer that is not at its answer_start, taken at the nearest place", where)
        return min(places, key=lambda place: abs(place - start))

    def claim_id(self, row_id: str, where: str) -> None:
        """Refuse an id that comes twice."""
        if row_id in self._ids:
            raise CorpusError(f"{where} has the id '{row_id}' of an earlier question: give each question its own id.")
        self._ids.add(row_id)

    def usual_spelling(self, label: Any, row: PlacedRow) -> Any:
        """Return the class of a row in its usual spelling; None where the annotators did not agree on one."""
        if label == UNDECIDED and UNDECIDED not in self.labels:
            self.report.note("row whose class the annotators did not agree on, left out", row.where)
            return None
        if isinstance(label, str):
            return _USUAL_SPELLINGS.get(label, label)
        return label


def _settings_of_columns(kind: str, columns: Columns) -> dict[str, str]:
    """Return the setting of a recipe that names each column, such as `label_column`, by the name of the column."""
    setting_of_column: dict[str, str] = {}
    for part in kind_of(kind).columns:
        value = getattr(columns, part)
        if part == "documents":
            setting_of_column |= dict.fromkeys(value, "document_columns")
        elif part == "label_columns":
            setting_of_column |= dict.fromkeys(value, "label_columns")
        elif value:
            setting_of_column[value] = f"{part}_column"
    return setting_of_column


def require_columns(row: PlacedRow, columns: Sequence[str], setting_of_column: Mapping[str, str] | None = None) -> None:
    """Refuse a row of a split that lacks one of the columns; the message says how to name the fields of a table.

    Args:
        row: The row.
        columns: The names of the columns.
        setting_of_column: The setting of a recipe that names each column; None where no recipe names them.

    Raises:
        CorpusError: naming the first.
    """
    for column in columns:
        if column in row.values:
            continue
        problem = missing_header(row)
        if problem is not None:
            raise CorpusError(
                f"{problem}; name its {len(row.values)} fields in the task file, "
                f"{{path: FILE, header: [{column}, …]}}, or give a file with a header."
            )
        setting = None if setting_of_column is None else setting_of_column.get(column)
        if setting is not None:
            raise CorpusError(f"{row.where} has no column '{column}': set {setting} to one of {describe_columns(row)}.")
        raise CorpusError(f"{row.where} has no column '{column}'; it has {describe_columns(row)}.")
