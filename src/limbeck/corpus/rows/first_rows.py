"""The first rows of labelled sources, by which a recipe is checked before anything is built.

A recipe is refused early where training could not learn from its rows: all rows are *alike*, which means that they have
the same class or classes, or each query of a ranking has a *single* document. Files are read until their rows show that
this is not so. A fact is *certain* only if no row that was not read could change it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.core import IGNORED_LABEL
from limbeck.core.kinds import KINDS
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.rows.classes import ClassCounts, count_classes
from limbeck.corpus.rows.row_kind import RowKind
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.named_sources import holds_texts_alone, local_files
from limbeck.errors import CorpusError

_MOST_ROWS = 100_000
"""Most rows that are read; with more of them nothing is certain."""


@dataclass(frozen=True)
class FirstRows:
    """Certain facts about labelled rows, before a corpus is built of them; the defaults mean that nothing is certain.

    Attributes:
        counts_of_alike: How many rows each class has, if it is certain that all rows are alike; None otherwise.
        have_single_documents: Whether it is certain that each query has a single document.
        absent: Classes that certainly have no row.
    """

    counts_of_alike: ClassCounts | None = None
    have_single_documents: bool = False
    absent: tuple[str, ...] = ()


def read_first_rows(
    settings: LabelledSettings, row_kind: RowKind, *, classes: bool = False, queries: bool = False
) -> FirstRows:
    """Read the first rows of local files, and report what they show for certain.

    At least one row of every local file is read, so that a missing column or label is found. With `classes` or
    `queries` further rows are read, up to 100,000.

    Args:
        settings: The sources of the rows, and how to read them.
        row_kind: The kind of their task.
        classes: Whether to find out if all rows are alike, and which classes are absent.
        queries: Whether to find out if all queries have a single document.

    Raises:
        CorpusError: for a source without a row, a row without a column or a label, or a label that is none of the
            task's.
    """
    seen = _SeenRows(settings, row_kind, classes=classes, queries=queries)
    are_all_readable = _read_sources(settings, seen)
    # Rows that were not read may differ from those that were.
    if not are_all_readable or seen.rows >= _MOST_ROWS:
        return FirstRows()
    # Now all rows were read, or those that were read have shown that the rows are not alike, or not single.
    facts = FirstRows(have_single_documents=seen.have_single_documents)
    if not classes:
        return facts

    kind = KINDS[settings.task]
    counts = count_classes(list(seen.labels.elements()), settings.labels, kind)
    if counts.has_one:
        return replace(facts, counts_of_alike=counts)
    # Rows with several classes and tagged words were read until two labels differed, and other classes may follow.
    if not kind.has_one_class:
        return facts
    # Where a row has one class, reading went on until all classes were found, so a class without a row is absent.
    absent = [name for name, count in zip(counts.names, counts.counts, strict=True) if count == 0]
    return replace(facts, absent=tuple(absent))


def _read_sources(settings: LabelledSettings, seen: _SeenRows) -> bool:
    """Read rows of all sources that can be read here, and return whether these are all sources.

    Not read are `.json` files, which could only be read as a whole, and sources that are no local files, such as data
    sets of the Hub.
    """
    are_all_readable = True
    for name in settings.sources:
        # Lines of text have no label that could be missing, so none of them is read.
        if settings.text_of_line is not None and holds_texts_alone(name):
            are_all_readable = False
            continue
        files = local_files([name])
        readable_files = [file for file in files if suffix_of(file) != ".json"]
        is_readable = bool(files) and len(readable_files) == len(files)
        if not is_readable:
            are_all_readable = False

        report = SourceReport()
        rows_before = seen.rows
        for file in readable_files:
            seen.read_file(file, report, rows_before)
        # A source of which a file was not read is taken to have rows in it.
        is_empty = seen.rows == rows_before
        if is_readable and is_empty:
            raise CorpusError(nothing_in(name, settings.row_name, report))
    return are_all_readable


class _SeenRows:
    """The rows that were read so far: their number, their labels and their queries.

    Args:
        settings: The sources of the rows, and how to read them.
        row_kind: The kind of their task.
        classes: Whether to read on until rows of every class were found, or, where a row may have several classes,
            until two rows differ.
        queries: Whether to read on until a query has two documents.

    Attributes:
        rows: Number of rows that were read.
        labels: Number of rows with each label; for tagged words the number of words. Empty without `classes`.
        have_single_documents: Whether each query had a single document so far; always false without `queries`.
    """

    def __init__(self, settings: LabelledSettings, row_kind: RowKind, *, classes: bool, queries: bool) -> None:
        self.rows = 0
        self.labels: Counter[Any] = Counter()
        # True until a query has a second document.
        self.have_single_documents = queries
        self._queries: set[str] = set()
        self._settings = settings
        self._of_words = row_kind.rows_of_words
        self._read_labelled_rows = row_kind.reader(settings)
        self._counts_labels = classes
        # Rows are read until so many different labels were found: with one class a row, all classes. Where a row has
        # several classes or tagged words, two different labels show that the rows are not all alike.
        self._labels_to_find = 2
        if KINDS[settings.task].has_one_class:
            self._labels_to_find = len(settings.labels)
        self._most_rows = min(_MOST_ROWS, settings.max_rows or _MOST_ROWS)

    def read_file(self, file: Path, report: SourceReport, rows_before: int) -> None:
        """Read rows of a file until nothing more can be learned from further ones.

        Args:
            file: The file.
            report: Receives what is skipped.
            rows_before: Number of rows that were read from earlier sources. The file is left only after a row of this
                source, even if the earlier ones have shown enough.
        """
        for row in read_rows(file, report, of_words=self._of_words, layout=self._settings.layout):
            for labelled_row in self._read_labelled_rows(row, report):
                self.rows += 1
                self._note_label(labelled_row.label)
                self._note_query(labelled_row.text)
            has_row_of_source = self.rows > rows_before
            if has_row_of_source and self._have_shown_enough():
                return

    def _note_label(self, label: Any) -> None:
        if not self._counts_labels:
            return
        if self._of_words:
            # The label of a sentence has the class of each word, or the mark of a word that is not scored.
            self.labels.update(number for number in label if number != IGNORED_LABEL)
        else:
            self.labels[label] += 1

    def _note_query(self, query: str) -> None:
        # Once a query had two documents, the answer is known.
        if self.have_single_documents:
            self.have_single_documents = query not in self._queries
            self._queries.add(query)

    def _have_shown_enough(self) -> bool:
        """Whether the labels and queries are known well enough, or the most rows were read."""
        if self.rows >= self._most_rows:
            return True
        needs_labels = self._counts_labels and len(self.labels) < self._labels_to_find
        needs_query_with_two_documents = self.have_single_documents
        return not needs_labels and not needs_query_with_two_documents
