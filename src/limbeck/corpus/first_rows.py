"""The first rows of labelled sources, as a recipe is checked by them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from limbeck.core.kinds import KINDS
from limbeck.corpus.classes import ClassCounts, count_classes
from limbeck.corpus.file_kinds import suffix_of
from limbeck.corpus.readers import read_rows
from limbeck.corpus.row_kind import RowKind
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import local_files
from limbeck.corpus.store import no_text_in
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
    kind, read = KINDS[settings.task], row_kind.reader(settings)
    labels: Counter[Any] = Counter()
    texts_seen: set[str] = set()
    row_count, is_single, is_whole = 0, queries, True
    most_labels = len(settings.labels) if kind.label == "class" else 2
    most = min(_PROBED_ROWS, settings.max_rows or _PROBED_ROWS)
    for name in settings.sources:
        files, report, before = local_files([name]), SourceReport(), row_count
        is_whole &= bool(files)
        for file in files:
            if suffix_of(file) == ".json":
                is_whole, row_count = False, row_count + 1
                continue
            for row in read_rows(file, report, of_words=row_kind.rows_of_words, header=settings.header):
                for example in read(row, report):
                    row_count += 1
                    label: Any = example.label
                    if classes:
                        labels.update(label if row_kind.rows_of_words else [label])
                    is_single &= example.text not in texts_seen
                    texts_seen.update([example.text] if is_single else ())
                wants_more = is_single or (classes and len(labels) < most_labels)
                if row_count > before and (row_count >= most or not wants_more):
                    break
        if files and row_count == before:
            raise CorpusError(no_text_in(name, "labelled row", report))
    if not is_whole or row_count >= _PROBED_ROWS:
        return FirstRows()
    counts = count_classes([*labels.elements()], settings.labels, kind.label) if classes else None
    if counts is None or counts.has_one or kind.label != "class":
        return FirstRows(counts if counts is not None and counts.has_one else None, is_single)
    absent = tuple(name for name, count in zip(counts.names, counts.counts, strict=True) if not count)
    return FirstRows(None, is_single, absent)
