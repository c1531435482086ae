"""The first rows of labelled sources, as a recipe is checked by them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
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

_PROBED_ROWS = 100_000


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
    is_whole = True
    for name in settings.sources:
        files = local_files([name])
        report = SourceReport()
        rows_before = seen.rows
        is_whole &= bool(files)
        for file in files:
            # A `.json` file is read as a whole: that it has rows is taken as given, and nothing else is known of it.
            if suffix_of(file) == ".json":
                is_whole = False
                seen.rows += 1
                continue
            for row in read_rows(file, report, of_words=row_kind.rows_of_words, header=settings.header):
                seen.add(row, report)
                has_one_of_source = seen.rows > rows_before
                if has_one_of_source and seen.is_enough:
                    break
        if files and seen.rows == rows_before:
            raise CorpusError(nothing_in(name, "labelled row", report))

    if not is_whole or seen.rows >= _PROBED_ROWS:
        return FirstRows()
    if not classes:
        return FirstRows(are_single=seen.is_single)
    label_kind = KINDS[settings.task].label
    counts = count_classes([*seen.labels.elements()], settings.labels, label_kind)
    if counts.has_one:
        return FirstRows(alike=counts, are_single=seen.is_single)
    if label_kind != "class":
        return FirstRows(are_single=seen.is_single)
    absent = tuple(name for name, count in zip(counts.names, counts.counts, strict=True) if count == 0)
    return FirstRows(are_single=seen.is_single, absent=absent)


class _SeenRows:
    """What the rows so far have shown.

    Args:
        settings: Of the rows.
        row_kind: The kind of their task.
        classes: Whether their classes are of interest.
        queries: Whether it is of interest that each query has one document.
    """

    def __init__(self, settings: LabelledSettings, row_kind: RowKind, *, classes: bool, queries: bool) -> None:
        self.rows = 0
        self.labels: Counter[Any] = Counter()
        self.is_single = queries
        self._texts: set[str] = set()
        self._has_tags = row_kind.rows_of_words
        self._read = row_kind.reader(settings)
        self._classes = classes
        # Of other labels than classes two that differ tell enough.
        self._most_labels = len(settings.labels) if KINDS[settings.task].label == "class" else 2
        self._most_rows = min(_PROBED_ROWS, settings.max_rows or _PROBED_ROWS)

    def add(self, row: Any, report: SourceReport) -> None:
        """Read a row of a file, which is one labelled row, several or none."""
        for example in self._read(row, report):
            self.rows += 1
            label: Any = example.label
            if self._classes:
                self.labels.update(label if self._has_tags else [label])
            if self.is_single:
                self.is_single = example.text not in self._texts
                self._texts.add(example.text)

    @property
    def is_enough(self) -> bool:
        """Whether further rows would tell nothing, or enough of them were read."""
        lacks_labels = self._classes and len(self.labels) < self._most_labels
        return self.rows >= self._most_rows or not (self.is_single or lacks_labels)
