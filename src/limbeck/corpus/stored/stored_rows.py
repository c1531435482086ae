"""`store_rows`: the labelled rows of sources, read once into the cache and shared by every tokenizer and length."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.cache import build_once
from limbeck.corpus.digests import DIGEST_BYTES
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.files.tagged_files import CONLLU
from limbeck.corpus.progress import Progress, StepProgress, step_progress, waiting_notice
from limbeck.corpus.rows.labelled_rows import LabelledRow, by_query
from limbeck.corpus.rows.row_kind import RowKind, RowReader
from limbeck.corpus.settings import LabelledRows, LabelledSettings
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.corpus.sources.source_kinds import RowSource, files_of
from limbeck.corpus.stored.arrow_files import row_files, row_schema, write_rows
from limbeck.corpus.stored.source_content import name_of_build
from limbeck.errors import CorpusError

ROW_FORMAT = 3
"""Raise it when the same sources would give other rows: older caches are then built anew."""


def store_rows(
    settings: LabelledSettings, kind: RowKind, cache_dir: Path, *, progress: Progress | None = None
) -> tuple[Path, dict[str, Any]]:
    """Read all labelled rows of some sources into a cached folder of Arrow files, unless it is there already.

    Args:
        settings: Sources, columns and class names.
        kind: The kind of the task.
        cache_dir: Root of the cache.
        progress: Called as reading advances.

    Returns:
        The folder and its manifest.

    Raises:
        CorpusError: if a source cannot be read or gives no row, or a row has no label of the task.
    """
    sources = _open_sources(settings, kind, progress)
    identity = _identity(settings, kind, sources)
    name = name_of_build(cache_dir, identity, [source.rows for source in sources], progress=progress)
    folder = cache_dir / "rows" / name

    def build(aside: Path) -> dict[str, Any]:
        """Write the rows of all sources into the folder of a build, and return its manifest."""
        reader = _AllRows(sources, settings.row_name)
        # With `max_rows` a source may be left in the middle. Closing the generator then adds the report of that source.
        with closing(reader.read()) as all_rows:
            written = write_rows(islice(all_rows, settings.max_rows), aside, row_schema(kind.label_type))
        return {
            "format": ROW_FORMAT,
            "sources": reader.rows_by_source,
            "content": [digest.hexdigest() for digest in reader.digests],
            "rows": written.items,
            "characters": written.characters,
            "texts": written.texts,
            "report": reader.report.to_dict(),
        }

    waiting = waiting_notice(progress, "waiting for another process that reads these rows")
    return folder, build_once(folder, build, waiting=waiting)


@dataclass(frozen=True)
class DevelopmentRows:
    """The stored development rows of a labelled corpus, if it has any.

    Args:
        folder: Where they are stored; None without development rows.
        content: Hashes of their content.
    """

    folder: Path | None = None
    content: Sequence[str] = ()

    @property
    def files(self) -> list[Path]:
        """The stored rows; no file without development rows."""
        return [] if self.folder is None else row_files(self.folder)


def store_development(
    settings: LabelledSettings, kind: RowKind, cache_dir: Path, *, progress: Progress | None = None
) -> DevelopmentRows:
    """Store the development rows, which are read with the same columns and classes as the rows to train on."""
    if settings.development is None:
        return DevelopmentRows()
    # The development rows take the place of the sources, and are neither limited nor split themselves.
    changes = {"sources": ["development rows"], "rows": settings.development, "development": None, "max_rows": None}
    folder, manifest = store_rows(settings.model_copy(update=changes), kind, cache_dir, progress=progress)
    return DevelopmentRows(folder, manifest["content"])


class _NamedRows(NamedTuple):
    """The labelled rows of a source.

    Args:
        name: Name of the source.
        rows: Its rows.
    """

    name: str
    rows: LabelledRows


class _AllRows:
    """Reads the rows of sources, one after the other, and counts them.

    Args:
        sources: The sources.
        row_name: What messages call a row.

    Attributes:
        rows_by_source: Rows that were read, by the name of their source.
        digests: A hash of the rows of each source.
        report: What was skipped or repaired.
    """

    def __init__(self, sources: Sequence[_NamedRows], row_name: str) -> None:
        self._sources = sources
        self._row_name = row_name
        self.rows_by_source: dict[str, int] = {}
        self.digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in sources]
        self.report = SourceReport()

    def read(self) -> Generator[LabelledRow, None, None]:
        """Iterate over all rows.

        Raises:
            CorpusError: if a source gives no row.
        """
        for (name, rows), digest in zip(self._sources, self.digests, strict=True):
            # A source may be listed several times.
            rows_before = self.rows_by_source.setdefault(name, 0)
            report = SourceReport()
            try:
                for row in rows.read(report):
                    self.rows_by_source[name] += 1
                    digest.update(f"{(row.text, row.pair, row.label)!r}\n".encode())
                    yield row
            finally:
                # The caller may also close the iterator in the middle of a source.
                self.report.merge(report)
            if self.rows_by_source[name] == rows_before:
                raise CorpusError(nothing_in(name, self._row_name, report))


@dataclass(frozen=True)
class _RowsOfSource:
    """The labelled rows of a source, as `LabelledRows`.

    Args:
        source: The source.
        reader: Reads the labelled rows of one row of the source.
        progress: Called as reading advances, or None.
        of_words: Whether a row is a sentence of words.
        of_queries: Whether a row is a document for a query. The rows of each query are then given together.
    """

    source: RowSource
    reader: RowReader
    progress: StepProgress | None
    of_words: bool
    of_queries: bool

    def fingerprint(self) -> Any:
        """Return the fingerprint of the source."""
        return self.source.fingerprint()

    def read_files(self) -> Sequence[FilePath]:
        """Return the files of the source; none where it has no files."""
        return files_of(self.source)

    def read(self, report: SourceReport) -> Iterator[LabelledRow]:
        """Iterate over the labelled rows; the report receives rows that are skipped."""
        rows = self._rows(report)
        if self.of_queries:
            yield from by_query(rows, report)
        else:
            yield from rows

    def _rows(self, report: SourceReport) -> Iterator[LabelledRow]:
        for row in self.source.rows(report, self.progress, of_words=self.of_words):
            yield from self.reader(row, report)


def _open_sources(settings: LabelledSettings, kind: RowKind, progress: Progress | None) -> list[_NamedRows]:
    """Open the sources of the rows in their order."""
    if settings.rows is not None:
        return [_NamedRows(", ".join(settings.sources), settings.rows)]
    reader = kind.reader(settings)  # Refuses settings that cannot be met before anything is read.
    sources: list[_NamedRows] = []
    for name in settings.sources:
        step = step_progress(progress, f"reading {name}")
        rows = _RowsOfSource(
            open_rows(name, settings.layout, settings.text_of_line),
            reader,
            step,
            of_words=kind.rows_of_words,
            of_queries=kind.has_queries,
        )
        sources.append(_NamedRows(name, rows))
    return sources


def _identity(settings: LabelledSettings, kind: RowKind, sources: Sequence[_NamedRows]) -> list[Any]:
    """Return the values that decide the stored rows, for the name of their folder.

    A value of a newer option is added only where the option is set, so that older cache folders keep their names.
    """
    choices: list[Any] = [settings.task, settings.named_columns, settings.labels, settings.max_rows]
    if kind.has_queries:
        # Rows of queries may have no label: with several columns of documents, the first has the relevant ones.
        choices += [settings.label_column, settings.document_columns]
    if settings.label_columns:
        choices.append(settings.label_columns)  # Their order decides the numbers of classes without names.
    if settings.label_lists is not None:
        choices.append({"label_lists": settings.label_lists})
    files = [path for source in sources for path in files_of(source.rows)]
    if any(suffix_of(path) == CONLLU for path in files):
        # Earlier versions took the numbers of words for words.
        choices.append("words of CoNLL-U")
    return [ROW_FORMAT, choices, [source.rows.fingerprint() for source in sources]]
