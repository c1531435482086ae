"""The first rows of labelled sources, by which a recipe is checked before anything is built."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core.kinds import KINDS
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.rows.classes import ClassCounts, count_classes
from limbeck.corpus.rows.row_kind import RowKind
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.named_sources import local_files
from limbeck.errors import CorpusError

_MOST_ROWS = 100_000


@dataclass(frozen=True)
class FirstRows:
    """What is known of labelled rows before they are built.

    Attributes:
        alike: Counts of their classes, where they are known to be all alike.
        are_single: Whether they are known to have one document a query.
        absent: Classes that are known to have no row.
    """

    alike: ClassCounts | None = None
    are_single: bool = False
    absent: tuple[str, ...] = ()


def read_first_rows(
    settings: LabelledSettings, row_kind: RowKind, *, classes: bool = False, queries: bool = False
) -> FirstRows:
    """Read the first rows of files: one of each, and on while they are all alike, as far as that tells something.

    Files that are read as a whole, Hub data sets and rows of tasks by name are left alone.

    Args:
        settings: Of the rows.
        row_kind: The kind of their task.
        classes: Read on until every class was met, or 100,000 rows were read.
        queries: Read on until a query has two documents, likewise.

    Raises:
        CorpusError: for a source without a row, a row without a column or a label, or a label that is none of the
            task's.
    """
    seen = _SeenRows(settings, row_kind, classes=classes, queries=queries)
    are_all_readable = True
    for name in settings.sources:
        files = local_files([name])
        # A `.json` file is read as a whole, so it is left alone: that it has rows is taken as given.
        readable_files = [file for file in files if suffix_of(file) != ".json"]
        if len(readable_files) < len(files) or not files:
            are_all_readable = False

        report = SourceReport()
        rows_before = seen.rows
        for file in readable_files:
            seen.read_file(file, report, rows_before)
        if files and len(readable_files) == len(files) and seen.rows == rows_before:
            raise CorpusError(nothing_in(name, "labelled row", report))

    if not are_all_readable or seen.rows >= _MOST_ROWS:
        return FirstRows()
    if not classes:
        return FirstRows(are_single=seen.are_single)
    kind = KINDS[settings.task]
    counts = count_classes(list(seen.labels.elements()), settings.labels, kind)
    if counts.has_one:
        return FirstRows(alike=counts, are_single=seen.are_single)
    # Of rows with several classes, and of words, some classes may well stand further behind.
    absent: list[str] = []
    if kind.has_one_class:
        absent = [name for name, count in zip(counts.names, counts.counts, strict=True) if count == 0]
    return FirstRows(are_single=seen.are_single, absent=tuple(absent))


class _SeenRows:
    """What the rows so far have shown.

    Args:
        settings: Of the rows.
        row_kind: The kind of their task.
        classes: Whether their classes are of interest.
        queries: Whether it is of interest that each query has one document.

    Attributes:
        rows: Number of rows that were read.
        labels: Rows of each label; of words, how many words have it.
        are_single: Whether each query has had one document.
    """

    def __init__(self, settings: LabelledSettings, row_kind: RowKind, *, classes: bool, queries: bool) -> None:
        self.rows = 0
        self.labels: Counter[Any] = Counter()
        self.are_single = queries
        self._queries: set[str] = set()
        self._settings = settings
        self._of_words = row_kind.rows_of_words
        self._read_rows = row_kind.reader(settings)
        self._counts_labels = classes
        # Until every class was met; of several classes and of words two different labels tell enough.
        self._most_labels = 2
        if KINDS[settings.task].has_one_class:
            self._most_labels = len(settings.labels)
        self._most_rows = min(_MOST_ROWS, settings.max_rows or _MOST_ROWS)

    def read_file(self, file: Path, report: SourceReport, rows_before: int) -> None:
        """Read rows of a file, until they have shown enough.

        Args:
            file: The file.
            report: Receives what is skipped.
            rows_before: Rows that were read of earlier sources: every source has one read at least.
        """
        for row in read_rows(file, report, of_words=self._of_words, layout=self._settings.layout):
            for labelled_row in self._read_rows(row, report):
                self.rows += 1
                self._note_label(labelled_row.label)
                self._note_query(labelled_row.text)
            if self.rows > rows_before and self._have_shown_enough():
                return

    def _note_label(self, label: Any) -> None:
        if not self._counts_labels:
            return
        if self._of_words:
            self.labels.update(label)
        else:
            self.labels[label] += 1

    def _note_query(self, query: str) -> None:
        if self.are_single:
            self.are_single = query not in self._queries
            self._queries.add(query)

    def _have_shown_enough(self) -> bool:
        """Whether further rows would tell nothing, or enough of them were read."""
        if self.rows >= self._most_rows:
            return True
        lacks_labels = self._counts_labels and len(self.labels) < self._most_labels
        return not lacks_labels and not self.are_single
