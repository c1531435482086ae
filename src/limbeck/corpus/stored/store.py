"""Documents and labelled rows on disk: read from their sources once, shared by every tokenizer and length."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from limbeck.core.cache import NothingToBuildError, build_once, finish_piece, read_piece
from limbeck.core.hashing import fingerprint
from limbeck.core.seals import HashedFile
from limbeck.corpus.messages import safe_name
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.rows.row_kind import RowKind, RowReader
from limbeck.corpus.settings import CorpusSettings, LabelledRows, LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_rows, open_source
from limbeck.corpus.sources.source_kinds import RowSource, Source
from limbeck.corpus.stored.seen_keys import AddKeys, seen_keys
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import OTHER_COLUMN, Document, next_batch
from limbeck.errors import CorpusError

Progress: TypeAlias = Callable[[str, int, int | None, str], None]
"""Called with the name of the step, the amount done, the total or `None` if it is not known, and what is counted."""
Keys: TypeAlias = Sequence[int] | npt.NDArray[np.uint64]
DOCUMENT_FORMAT = 2
"""Raise it when the same sources would give other documents: older caches are then built anew."""
ROW_FORMAT = 1
"""Raise it when the same sources would give other rows: older caches are then built anew."""
# Characters of one file: the shard of work of one tokenising process, and of what a killed build repeats.
SHARD_CHARACTERS = 16_000_000
ROW_SHARD_CHARACTERS = 4_000_000
_BATCH_ITEMS = 1000
_BATCH_CHARACTERS = 4_000_000
# 2**64 divided by the golden ratio, the usual constant that spreads 64-bit keys.
_SALT = 0x9E3779B97F4A7C15
_DOCUMENT_SCHEMA = pa.schema([("text", pa.large_string()), ("title", pa.large_string()), ("key", pa.uint64())])


def digest_of(parts: Iterable[str]) -> str:
    """Return a short hash of texts in their order."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(f"{len(part)} {part}".encode(errors="surrogatepass"))
    return digest.hexdigest()


def bind_progress(progress: Progress | None, *arguments: Any) -> Callable[..., None] | None:
    """Return `progress` with its first arguments filled in; `None` where there is none."""
    if progress is None:
        return None
    return partial(progress, *arguments)


def store_documents(
    settings: CorpusSettings, cache_dir: Path, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[Path, dict[str, Any]]:
    """Read all documents of some sources into a cached folder of Arrow files, unless it is there already.

    A document whose text has appeared before is left out and counted. No file holds documents of two sources. A build
    that was killed goes on behind its last finished file.

    Args:
        settings: Sources, column of the text, and most documents to keep.
        cache_dir: Root of the cache.
        workers: Processes for sources that are read in parallel.
        progress: Called as reading advances.

    Returns:
        The folder and its manifest.

    Raises:
        CorpusError: if a source cannot be read, or gives no document.
    """
    sources = [(name, open_source(name, settings.text_column, workers)) for name in settings.places]
    values = [DOCUMENT_FORMAT, settings.max_documents, [source.fingerprint() for _, source in sources]]
    # A source that is listed again is read in another way: its documents are no repeats of its own.
    listed_before = [0] * len(sources)
    if settings.uses:
        for place, name in enumerate(settings.places):
            listed_before[place] = settings.places[:place].count(name)
    if any(listed_before):
        values.append(listed_before)
    folder = cache_dir / "documents" / fingerprint(values)

    def build(aside: Path) -> dict[str, Any]:
        reader = SourceReader(sources, settings.max_documents, _last_state(aside))
        with seen_keys(aside / "seen.sqlite") as add_keys:
            # The keys of the files that a killed build has finished.
            for source, path in zip(reader.shards, stored_files(aside), strict=False):
                for batch in read_batches(path):
                    _apart(add_keys, listed_before[source])(batch.column("key").to_pylist())

            for source in reader.sources():
                batches = reader.batches(_apart(add_keys, listed_before[source]), progress)
                first = len(reader.shards)
                for path in _write_shards(aside, "documents", _DOCUMENT_SCHEMA, batches, SHARD_CHARACTERS, first):
                    reader.shards.append(source)
                    finish_piece(aside, path.stem, [path.name], reader.state())
        return {"format": DOCUMENT_FORMAT, **reader.manifest()}

    waiting = bind_progress(progress, "waiting for another process that reads this text", 0, None, "")
    return folder, build_once(folder, build, goes_on=True, waiting=waiting)


def _last_state(folder: Path) -> dict[str, Any] | None:
    """Return the state of `SourceReader` behind the last finished file of a folder; None where no file is finished."""
    state = None
    finished_files = 0
    while (piece := read_piece(folder, f"documents-{finished_files:05d}")) is not None:
        state = piece
        finished_files += 1
    return state


def _apart(add_keys: AddKeys, listed_before: int) -> AddKeys:
    """Return a function that adds keys of a source that was listed before, apart from those that it added then.

    Args:
        add_keys: Adds keys of documents, 64 bits each.
        listed_before: How often the source was listed before.
    """
    if listed_before == 0:
        return add_keys
    salt = listed_before * _SALT % 2**64
    return lambda keys: add_keys([key ^ salt for key in keys])


def store_rows(
    settings: LabelledSettings, kind: RowKind, cache_dir: Path, *, progress: Progress | None = None
) -> tuple[Path, dict[str, Any]]:
    """Read all labelled rows of some sources into a cached folder of Arrow files, unless it is there already.

    Args:
        settings: Sources, columns and class names.
        kind: The kind of their task.
        cache_dir: Root of the cache.
        progress: Called as reading advances.

    Returns:
        The folder and its manifest.

    Raises:
        CorpusError: if a source cannot be read or gives no row, or a row has no label of the task.
    """
    sources = _row_sources(settings, kind, progress)
    states = [source.fingerprint() for _, source in sources]
    choices: list[Any] = [settings.task, settings.named_columns, settings.labels, settings.max_rows]
    if kind.has_queries:
        # Rows may lack the label; of several columns of documents the first holds the relevant ones.
        choices += [settings.label_column, settings.document_columns]
    if settings.label_columns:
        choices.append(settings.label_columns)  # Classes without names are numbered in their order.
    folder = cache_dir / "rows" / fingerprint([ROW_FORMAT, choices, states])
    schema = pa.schema(
        [("text", pa.large_string()), ("pair", pa.large_string()), ("label", kind.label_type), ("key", pa.uint64())]
    )

    def build(aside: Path) -> dict[str, Any]:
        report = SourceReport()
        rows_by_source: dict[str, int] = {}
        digests = [hashlib.blake2b(digest_size=12) for _ in sources]

        def examples() -> Generator[LabelledRow, None, None]:
            for (name, source), digest in zip(sources, digests, strict=True):
                rows_by_source[name] = 0
                source_report = SourceReport()
                try:
                    for example in source.read(source_report):
                        rows_by_source[name] += 1
                        digest.update(f"{(example.text, example.pair, example.label)!r}\n".encode())
                        yield example
                finally:
                    report.merge(source_report)
                if rows_by_source[name] == 0:
                    raise CorpusError(no_text_in(name, "labelled row", source_report))

        # Closed at max_rows, so that the report of a source that was left in the middle is there.
        with closing(examples()) as all_examples:
            first_examples = islice(all_examples, settings.max_rows)
            written = _write_items(aside, "rows", schema, first_examples, ROW_SHARD_CHARACTERS)
        return {
            "format": ROW_FORMAT,
            "sources": rows_by_source,
            "content": [digest.hexdigest() for digest in digests],
            "rows": written.items,
            "characters": written.characters,
            "texts": written.texts,
            "report": report.to_dict(),
        }

    return folder, build_once(folder, build)


@dataclass(frozen=True)
class _RowsOfSource:
    """The rows of a source as examples.

    Args:
        source: The source.
        reader: Reads the labelled rows of a row.
        step: Called as reading advances, or None.
        of_words: Whether a row is a sentence of words.
    """

    source: RowSource
    reader: RowReader
    step: Callable[..., None] | None
    of_words: bool = False

    def fingerprint(self) -> Any:
        """Return that of the source."""
        return self.source.fingerprint()

    def read(self, report: SourceReport) -> Iterator[LabelledRow]:
        """Iterate over the examples; rows that are skipped are noted."""
        for row in self.source.rows(report, self.step, of_words=self.of_words):
            yield from self.reader(row, report)


def _row_sources(
    settings: LabelledSettings, kind: RowKind, progress: Progress | None
) -> list[tuple[str, LabelledRows]]:
    """Return the names of a labelled corpus's sources, and how their examples are read."""
    if settings.rows is not None:
        return [(", ".join(settings.sources), settings.rows)]
    reader = kind.reader(settings)  # Refuses settings that cannot be met before anything is read.
    sources: list[tuple[str, LabelledRows]] = []
    for name in settings.sources:
        source = open_rows(name, settings.header)
        step = bind_progress(progress, f"reading {name}")
        sources.append((name, _RowsOfSource(source, reader, step, kind.rows_of_words)))
    return sources


def write_documents(documents: Iterable[Document], folder: Path) -> Written:
    """Write documents to `documents-00000.arrow` and so on."""
    return _write_items(folder, "documents", _DOCUMENT_SCHEMA, iter(documents), SHARD_CHARACTERS)


def stored_files(folder: Path, stem: str = "documents") -> list[Path]:
    """Return the files that hold the documents or `"rows"` of a folder, in order."""
    return sorted(folder.glob(f"{stem}-*.arrow"))


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Iterate over the record batches of one file, memory-mapped."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def read_documents(folder: Path, below: int | None = None) -> Iterator[Document]:
    """Iterate over the documents of a folder: all, or those with a key below a threshold."""
    for path in stored_files(folder):
        for batch in read_batches(path):
            texts = batch.column("text").to_pylist()
            titles = batch.column("title").to_pylist()
            for document in map(Document, texts, titles):
                if below is None or document.key < below:
                    yield document


def read_labelled(path: Path) -> Iterator[tuple[list[LabelledRow], npt.NDArray[np.uint64]]]:
    """Iterate over the batches of one file of rows, each with the keys of the texts."""
    yield from map(labelled_of, read_batches(path))


def labelled_of(batch: pa.RecordBatch) -> tuple[list[LabelledRow], npt.NDArray[np.uint64]]:
    """Return the rows of a stored batch, and the keys of their texts."""
    texts = batch.column("text").to_pylist()
    pairs = batch.column("pair").to_pylist()
    labels = batch.column("label").to_pylist()
    rows = []
    for text, pair, label in zip(texts, pairs, labels, strict=True):
        if isinstance(label, list):  # Arrow has no tuples, which labels of several numbers are.
            label = tuple(label)
        rows.append(LabelledRow("", text, pair, label))
    return rows, batch.column("key").to_numpy()


def batch_of(examples: Sequence[LabelledRow], keys: Keys, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as they are stored; see `labelled_of`."""
    return pa.record_batch(_columns(examples, keys), schema=schema)


def lowest_keys(folder: Path, count: int) -> npt.NDArray[np.uint64]:
    """Return the `count` lowest keys of a folder's documents, sorted; all if there are fewer."""
    lowest = np.empty(0, np.uint64)
    for path in stored_files(folder):
        for batch in read_batches(path):
            lowest = np.sort(np.concatenate([lowest, batch.column("key").to_numpy()]))[:count]
    return lowest


def no_text_in(name: str, kind: str, report: SourceReport) -> str:
    """Return the message for a source without a document or row, with the problems that were counted."""
    message = f"The source '{safe_name(name)}' holds no {kind}"
    problems = report.lines()
    if problems:
        message += f": {'; '.join(problems)}"
    message += "."
    if any(problem.startswith(OTHER_COLUMN) for problem in report.counts):
        message += " Set text_column to the column of the text."
    return message


class SourceReader:
    """Reads sources one after the other, in batches without repeats, from any batch on.

    Args:
        sources: Their names and the sources.
        max_documents: Most documents to keep.
        state: The result of `state` at the position to go on from; `None` begins.

    Attributes:
        shards: For each file that was written, the index of its source; kept here by the writer.
    """

    def __init__(
        self, sources: Sequence[tuple[str, Source]], max_documents: int | None, state: dict[str, Any] | None = None
    ) -> None:
        self._sources = sources
        self._max_documents = max_documents
        if state is None:
            state = {}
        self._source: int = state.get("source", 0)
        self._cursor = Cursor.from_json(state.get("cursor", Cursor().to_json()))
        self._read: list[int] = state.get("read", [0] * len(sources))
        self._documents: int = state.get("documents", 0)
        self._characters: int = state.get("characters", 0)
        self._report = SourceReport.from_dict(state.get("report", {}))  # Of all sources that have ended.
        self._source_report = SourceReport.from_dict(state.get("own", {}))  # Of the source that is being read.
        self.shards: list[int] = state.get("shards", [])

    def state(self) -> dict[str, Any]:
        """Return the position behind the last batch that was given, as plain JSON values."""
        return {
            "source": self._source,
            "cursor": self._cursor.to_json(),
            "read": self._read,
            "own": self._source_report.to_dict(),
            **self._counts(),
        }

    def manifest(self) -> dict[str, Any]:
        """Return the counts of everything that was read, by source and in all."""
        documents_by_source: dict[str, int] = {}
        for (name, _), count in zip(self._sources, self._read, strict=True):  # A name may be listed more than once.
            documents_by_source[name] = documents_by_source.get(name, 0) + count
        return {"sources": documents_by_source, **self._counts()}

    def _counts(self) -> dict[str, Any]:
        return {
            "documents": self._documents,
            "characters": self._characters,
            "shards": self.shards,
            "report": self._report.to_dict(),
        }

    def _is_full(self) -> bool:
        return self._documents == self._max_documents

    def sources(self) -> Iterator[int]:
        """Iterate over the indices of the sources that are left; read `batches` to their end for each.

        Raises:
            CorpusError: if a source gives no document.
        """
        while self._source < len(self._sources) and not self._is_full():
            yield self._source
            self._report.merge(self._source_report)
            if self._read[self._source] == 0:
                name, _ = self._sources[self._source]
                raise NothingToBuildError(no_text_in(name, "text", self._source_report))
            self._source += 1
            self._cursor = Cursor()
            self._source_report = SourceReport()

    def batches(self, add_keys: AddKeys, progress: Progress | None) -> Iterator[tuple[list[Any], int]]:
        """Iterate over the rest of the current source: columns of documents that are new, and their characters.

        Args:
            add_keys: Adds the keys of documents to those so far.
            progress: Called as reading advances.

        Raises:
            CorpusError: if the source cannot be read.
        """
        name, source = self._sources[self._source]
        step = bind_progress(progress, f"reading {name}")
        documents = source.documents(self._source_report, step, self._cursor)
        while not self._is_full():
            batch = next_batch(documents, _BATCH_ITEMS, _BATCH_CHARACTERS, lambda document: len(document.text))
            if not batch:
                return
            self._read[self._source] += len(batch)
            new_documents = self._new_documents(batch, add_keys)
            if new_documents:
                characters = sum(len(document.text) for document in new_documents.values())
                self._documents += len(new_documents)
                self._characters += characters
                yield _columns([*new_documents.values()], [*new_documents]), characters

    def _new_documents(self, batch: Sequence[Document], add_keys: AddKeys) -> dict[int, Document]:
        """Return the documents of a batch that were not there before, by key, as many as may still be kept."""
        new_documents: dict[int, Document] = {}
        keys = [document.key for document in batch]
        for document, key, is_new in zip(batch, keys, add_keys(keys), strict=True):
            if self._documents + len(new_documents) == self._max_documents:
                break
            if is_new:
                new_documents[key] = document
            else:
                self._source_report.note("document that repeats another", repr(document.text[:40]))
        return new_documents


def _columns(items: Sequence[Document | LabelledRow], keys: Keys) -> list[Any]:
    """Return documents or rows column by column, with their keys last."""
    values: list[tuple[Any, ...]] = []
    for item in items:
        if isinstance(item, LabelledRow):
            values.append((item.text, item.pair, item.label))
        else:
            values.append(tuple(item))
    columns: list[Any] = [list(column) for column in zip(*values, strict=True)]
    columns.append(pa.array(keys, pa.uint64()))
    return columns


def _characters_of(item: Document | LabelledRow) -> int:
    if isinstance(item, LabelledRow) and item.pair is not None:
        return len(item.text) + len(item.pair)
    return len(item.text)


class Written(NamedTuple):
    """Counts of what was written.

    Args:
        items: Documents or rows.
        characters: Characters in them.
        texts: Distinct texts.
    """

    items: int
    characters: int
    texts: int


def _write_items(
    folder: Path, stem: str, schema: pa.Schema, items: Iterator[Document | LabelledRow], most: int
) -> Written:
    """Write documents or examples as they come; see `_write_shards`."""

    def keyed_batches() -> Iterator[tuple[list[Document | LabelledRow], list[int]]]:
        while batch := list(islice(items, _BATCH_ITEMS)):
            yield batch, [Document(item.text).key for item in batch]

    return _write_keyed(folder, stem, schema, keyed_batches(), most)


def write_rows(folder: Path, schema: pa.Schema, batches: Iterable[tuple[list[LabelledRow], Keys]]) -> Written:
    """Write rows with their keys to `rows-00000.arrow` and so on."""
    return _write_keyed(folder, "rows", schema, batches, ROW_SHARD_CHARACTERS)


def _write_keyed(
    folder: Path,
    stem: str,
    schema: pa.Schema,
    keyed: Iterable[tuple[Sequence[Document | LabelledRow], Keys]],
    most: int,
) -> Written:
    """Write documents or rows with their keys, and count them; see `_write_shards`."""
    items = 0
    characters = 0
    text_keys: set[int] = set()  # Equal texts have equal keys.

    def batches() -> Iterator[tuple[list[Any], int]]:
        nonlocal items, characters
        for batch, keys in keyed:
            characters_of_batch = sum(_characters_of(item) for item in batch)
            items += len(batch)
            characters += characters_of_batch
            text_keys.update(int(key) for key in keys)
            yield _columns(batch, keys), characters_of_batch

    for _ in _write_shards(folder, stem, schema, batches(), most):
        pass  # Files are written as they are asked for.
    return Written(items, characters, len(text_keys))


def _write_shards(
    folder: Path, stem: str, schema: pa.Schema, batches: Iterator[tuple[list[Any], int]], most: int, first: int = 0
) -> Iterator[Path]:
    """Write batches to `STEM-00000.arrow` and so on; give each file when it is whole.

    Args:
        folder: Where the files go.
        stem: Beginning of their names.
        schema: Columns of a batch.
        batches: Columns of each batch, and its characters.
        most: Characters that end a file.
        first: Number of the first file.
    """
    for number, batch in enumerate(batches, start=first):
        path = folder / f"{stem}-{number:05d}.arrow"
        with HashedFile(path) as file, pa.ipc.new_stream(file, schema) as writer:
            characters_in_file = 0
            # The batch that began the file, and those behind it.
            for columns, characters in chain([batch], batches):
                writer.write_batch(pa.record_batch(columns, schema=schema))
                characters_in_file += characters
                if characters_in_file >= most:
                    break
        yield path
