"""Documents on disk: read from their sources once, shared by every tokenizer and every way to cut them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from limbeck.core.files import NothingToBuildError, build_once, fingerprint, finish_piece, read_piece
from limbeck.corpus.documents import Cursor, Document, SourceReport, one_line
from limbeck.corpus.labelled import Example, example_reader
from limbeck.corpus.settings import LabelledSettings, LabelledTask
from limbeck.corpus.sources import RowSource, Source, open_rows, open_source
from limbeck.errors import CorpusError

# `SeenKeys`: the keys of all documents so far, on disk, so that memory does not grow with the corpus.


_CACHE_KIBIBYTES = 4 * 1024
_OFFSET = 2**63  # SQLite's whole numbers are signed.


class SeenKeys:
    """A set of 64-bit keys in a file, which is removed at the end.

    A set in memory needs about 100 bytes a key: gigabytes where documents are lines. The file needs about 16 bytes a
    key, of which 4 MiB are in memory; a key costs some microseconds.

    Args:
        path: The file; an old one there is removed.
    """

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._path = path
        self._base = sqlite3.connect(path, isolation_level=None)
        # The file is of no use after a crash, so nothing is done to make it survive one.
        for pragma in ("journal_mode=off", "synchronous=off", f"cache_size=-{_CACHE_KIBIBYTES}"):
            self._base.execute(f"pragma {pragma}")
        self._base.execute("create table seen (key integer primary key)")

    def add(self, keys: Sequence[int]) -> list[bool]:
        """Add keys, uint64; return of each whether it is new."""
        # The whole batch in one statement; it answers with those that were not there.
        signed = json.dumps([int(key) - _OFFSET for key in keys])
        added = {
            key + _OFFSET
            for (key,) in self._base.execute(
                "insert or ignore into seen select value from json_each(?) returning key", (signed,)
            )
        }
        new = []
        for key in keys:
            new.append(int(key) in added)
            added.discard(int(key))  # A key that comes twice in the batch is new once.
        return new

    def fill(self, batches: Iterable[Sequence[int]]) -> None:
        """Add keys that are known to be new."""
        for keys in batches:
            self.add(keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()
        self._path.unlink(missing_ok=True)


# `Reading`: all documents of some sources, batch by batch, without repeats, from any batch on.


Progress: TypeAlias = Callable[[str, int, int | None, str], None]
"""Called with the name of the step, what is done, the total or `None` if it is not known, and what is counted."""

_BATCH_DOCUMENTS = 1000
_BATCH_CHARACTERS = 4_000_000


class DocumentBatch(NamedTuple):
    """Some documents of one source, none of which appeared before.

    Args:
        documents: The documents; at least one.
        keys: Their keys.
        characters: Their length.
    """

    documents: list[Document]
    keys: list[int]
    characters: int


class Reading:
    """Reads sources one after the other.

    Args:
        sources: Their names and the sources.
        max_documents: Most documents to keep.
        state: What `state` returned at the place to go on from; `None` begins.

    Attributes:
        shards: For each file that was written, the index of its source; kept here for the one who writes them.
    """

    def __init__(
        self, sources: Sequence[tuple[str, Source]], max_documents: int | None, state: dict[str, Any] | None = None
    ) -> None:
        self._sources = sources
        self._most = max_documents
        state = state or {"source": 0, "cursor": Cursor().to_json(), "read": [0] * len(sources)}
        self._source: int = state["source"]
        self._cursor = Cursor.from_json(state["cursor"])
        self._read: list[int] = state["read"]
        self._documents: int = state.get("documents", 0)
        self._characters: int = state.get("characters", 0)
        empty = SourceReport().to_dict()
        self._report = SourceReport.from_dict(state.get("report", empty))
        self._own = SourceReport.from_dict(state.get("own", empty))
        self.shards: list[int] = state.get("shards", [])

    def state(self) -> dict[str, Any]:
        """Return where reading stands, behind the last batch that was given, as plain JSON values."""
        return {
            "source": self._source,
            "cursor": self._cursor.to_json(),
            "read": self._read,
            "documents": self._documents,
            "characters": self._characters,
            "report": self._report.to_dict(),
            "own": self._own.to_dict(),
            "shards": self.shards,
        }

    def manifest(self) -> dict[str, Any]:
        """Return what was read, by source and in all."""
        per_source: dict[str, int] = {}
        for (name, _), count in zip(self._sources, self._read, strict=True):
            per_source[name] = per_source.get(name, 0) + count
        return {
            "sources": per_source,
            "documents": self._documents,
            "characters": self._characters,
            "shards": self.shards,
            "report": self._report.to_dict(),
        }

    def sources(self) -> Iterator[int]:
        """Iterate over the indices of the sources that are left; read `batches` to their end for each.

        Raises:
            CorpusError: if a source gives no document.
        """
        while self._source < len(self._sources) and not self._full:
            yield self._source
            self._report.merge(self._own)
            if self._read[self._source] == 0:
                name, problems = self._sources[self._source][0], self._own.lines()
                why = f": {'; '.join(problems)}" if problems else ""
                raise NothingToBuildError(f"The source '{one_line(name)}' holds no text{why}.")
            self._source += 1
            self._cursor, self._own = Cursor(), SourceReport()

    def batches(self, seen: SeenKeys, progress: Progress | None) -> Iterator[DocumentBatch]:
        """Iterate over what is left of the source that it is the turn of.

        Args:
            seen: Keys of the documents so far.
            progress: Told how reading advances.

        Raises:
            CorpusError: if the source cannot be read.
        """
        name, source = self._sources[self._source]
        step = None if progress is None else partial(progress, f"reading {name}")
        documents = source.documents(self._own, step, self._cursor)
        while not self._full and (batch := _next_batch(documents)):
            self._read[self._source] += len(batch)
            kept, keys = self._new(batch, seen)
            if kept:
                characters = sum(len(document.text) for document in kept)
                self._documents += len(kept)
                self._characters += characters
                yield DocumentBatch(kept, keys, characters)

    @property
    def _full(self) -> bool:
        return self._documents == self._most

    def _new(self, batch: list[Document], seen: SeenKeys) -> tuple[list[Document], list[int]]:
        """Leave out what appeared before, and what is too many."""
        kept: list[Document] = []
        keys: list[int] = []
        all_keys = [document.key for document in batch]
        for document, key, is_new in zip(batch, all_keys, seen.add(all_keys), strict=True):
            if self._documents + len(kept) == self._most:
                break
            if is_new:
                kept.append(document)
                keys.append(key)
            else:
                self._own.note("document that repeats another", repr(document.text[:40]))
        return kept, keys


def _next_batch(documents: Iterator[Document]) -> list[Document]:
    batch = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            break
    return batch


DOCUMENT_FORMAT = 2
"""Raise it when the same sources would give other documents: older caches are then built anew."""

# Characters of one file: the piece of work of one tokenising process, and of what a killed build repeats.
SHARD_CHARACTERS = 16_000_000
_SCHEMA = pa.schema([("text", pa.large_string()), ("title", pa.large_string()), ("key", pa.uint64())])
_WRITTEN_TOGETHER = 1000


def store_documents(
    names: Sequence[str],
    cache_dir: Path,
    *,
    text_column: str = "text",
    max_documents: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Read all documents of some sources into a cached folder of Arrow files, unless it is there already.

    A document whose text has appeared before is left out and counted. No file holds documents of two sources. A build
    that was killed goes on behind its last finished file.

    Args:
        names: Source strings.
        cache_dir: Root of the cache.
        text_column: Column of the text, for sources that have columns.
        max_documents: Most documents to keep.
        workers: Processes for sources that are read in parallel.
        progress: Told how reading advances.

    Returns:
        The folder and its manifest.

    Raises:
        CorpusError: if a source cannot be read, or gives no document.
    """
    sources = [(name, open_source(name, text_column, workers)) for name in names]
    values = [DOCUMENT_FORMAT, max_documents, [source.fingerprint() for _, source in sources]]
    folder = cache_dir / "documents" / fingerprint(values)

    def build(aside: Path) -> dict[str, Any]:
        reading = _take_up(aside, sources, max_documents)
        with SeenKeys(aside / "seen.sqlite") as seen:
            for shard in range(len(reading.shards)):
                seen.fill(batch.column("key").to_pylist() for batch in read_batches(aside / _file(shard)))
            _write_shards(reading, seen, aside, progress)
        return {"format": DOCUMENT_FORMAT, **reading.manifest()}

    return folder, build_once(folder, build, goes_on=True, waiting=_waiting(progress))


def write_documents(documents: Iterable[Document], folder: Path) -> tuple[int, int]:
    """Write documents to `documents-00000.arrow` and so on; return how many, and their characters."""
    iterator = iter(documents)
    count = characters = shard = 0
    for first in iterator:
        written, size = _write_file(chain([first], iterator), folder / _file(shard))
        count, characters, shard = count + written, characters + size, shard + 1
    return count, characters


def document_files(folder: Path) -> list[Path]:
    """Return the files that hold the documents of a folder, in order."""
    return sorted(folder.glob("documents-*.arrow"))


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Iterate over the record batches of one file, memory-mapped; columns `text`, `title` and `key`."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def lowest_keys(folder: Path, count: int) -> npt.NDArray[np.uint64]:
    """Return the `count` lowest keys of a folder's documents, sorted; all if there are fewer."""
    lowest = np.empty(0, np.uint64)
    for path in document_files(folder):
        for batch in read_batches(path):
            lowest = np.sort(np.concatenate([lowest, batch.column("key").to_numpy()]))[:count]
    return lowest


def read_documents(folder: Path) -> Iterator[Document]:
    """Iterate over the documents of a folder."""
    for path in document_files(folder):
        for batch in read_batches(path):
            texts, titles = batch.column("text").to_pylist(), batch.column("title").to_pylist()
            yield from map(Document, texts, titles)


def _take_up(folder: Path, sources: Sequence[tuple[str, Source]], max_documents: int | None) -> Reading:
    """Begin to read, or go on behind the last file that a killed builder finished."""
    state = None
    shard = 0
    while (piece := read_piece(folder, _piece(shard))) is not None:
        state, shard = piece, shard + 1
    return Reading(sources, max_documents, state)


def _write_shards(reading: Reading, seen: SeenKeys, folder: Path, progress: Progress | None) -> None:
    """Write what is left to read; every file is a piece, together with the place behind it."""
    for source in reading.sources():
        batches = reading.batches(seen, progress)
        for first in batches:
            shard = len(reading.shards)
            with pa.OSFile(str(folder / _file(shard)), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
                characters = 0
                batch: DocumentBatch | None = first
                while batch is not None:
                    _write_batch(writer, batch.documents, batch.keys)
                    characters += batch.characters
                    batch = next(batches, None) if characters < SHARD_CHARACTERS else None
            reading.shards.append(source)
            finish_piece(folder, _piece(shard), [_file(shard)], reading.state())


def _write_file(documents: Iterator[Document], path: Path) -> tuple[int, int]:
    count = characters = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
        while characters < SHARD_CHARACTERS and (batch := list(islice(documents, _WRITTEN_TOGETHER))):
            _write_batch(writer, batch, [document.key for document in batch])
            count += len(batch)
            characters += sum(len(document.text) for document in batch)
    return count, characters


def _write_batch(writer: pa.RecordBatchStreamWriter, documents: Sequence[Document], keys: Sequence[int]) -> None:
    texts, titles = [document.text for document in documents], [document.title for document in documents]
    writer.write_batch(pa.record_batch([texts, titles, pa.array(keys, pa.uint64())], schema=_SCHEMA))


def _file(shard: int) -> str:
    return f"documents-{shard:05d}.arrow"


def _piece(shard: int) -> str:
    return f"documents-{shard:05d}"


def _waiting(progress: Progress | None) -> Callable[[], None] | None:
    return (
        None if progress is None else lambda: progress("waiting for another process that reads this text", 0, None, "")
    )


# Labelled rows on disk: read from their sources and checked once, shared by every tokenizer and length.


ROW_FORMAT = 1
"""Raise it when the same sources would give other rows: older caches are then built anew."""

# Characters of one file: the piece of work of one tokenising process.
LABELLED_SHARD_CHARACTERS = 4_000_000
_BATCH_ROWS = 1000

LABEL_TYPES: dict[LabelledTask, pa.DataType] = {
    "classification": pa.int64(),
    "regression": pa.float64(),
    "question_answering": pa.list_(pa.int64(), 2),
}


def store_rows(
    settings: LabelledSettings, cache_dir: Path, *, progress: Progress | None = None
) -> tuple[Path, dict[str, Any]]:
    """Read all rows of some sources into a cached folder of Arrow files, unless it is there already.

    Args:
        settings: Sources, columns and class names.
        cache_dir: Root of the cache.
        progress: Told how reading advances.

    Returns:
        The folder and its manifest.

    Raises:
        CorpusError: if a source cannot be read or gives no row, or a row has no label of the task.
    """
    example_reader(settings)  # Refuses settings that cannot be met before anything is read.
    sources = [(name, open_rows(name)) for name in settings.sources]
    states = [source.fingerprint() for _, source in sources]
    choices = [settings.task, settings.columns, settings.labels, settings.max_rows]
    folder = cache_dir / "rows" / fingerprint([ROW_FORMAT, choices, states])

    def build(aside: Path) -> dict[str, Any]:
        report = SourceReport()
        per_source: dict[str, int] = {}
        # Closed at max_rows, so that the report of a source that was left in the middle is there.
        with closing(_read(sources, settings, per_source, report, progress)) as examples:
            counts = _write(islice(examples, settings.max_rows), settings.task, aside)
        return {"format": ROW_FORMAT, "sources": per_source, **counts, "report": report.to_dict()}

    return folder, build_once(folder, build)


def row_files(folder: Path) -> list[Path]:
    """Return the files that hold the rows of a folder, in order."""
    return sorted(folder.glob("rows-*.arrow"))


def read_examples(path: Path) -> Iterator[tuple[list[Example], npt.NDArray[np.uint64]]]:
    """Iterate over one file: some rows, and the key of each row's text."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            columns = (batch.column(name).to_pylist() for name in ("text", "pair", "label"))
            yield list(map(Example, *columns)), batch.column("key").to_numpy()


def _read(
    sources: Sequence[tuple[str, RowSource]],
    settings: LabelledSettings,
    per_source: dict[str, int],
    report: SourceReport,
    progress: Progress | None,
) -> Generator[Example, None, None]:
    read_example = example_reader(settings)
    for name, source in sources:
        per_source[name] = 0
        own = SourceReport()
        step = None if progress is None else partial(progress, f"reading {name}")
        try:
            for row in source.rows(own, step):
                example = read_example(row, own)
                if example is not None:
                    per_source[name] += 1
                    yield example
        finally:
            report.merge(own)
        if per_source[name] == 0:
            why = f": {'; '.join(own.lines())}" if own.lines() else ""
            raise CorpusError(f"The source '{name}' holds no labelled row{why}.")


def _write(examples: Iterator[Example], task: LabelledTask, folder: Path) -> dict[str, int]:
    """Write rows to `rows-00000.arrow` and so on; return the counts of rows, distinct texts and characters."""
    columns = [("text", pa.large_string()), ("pair", pa.large_string()), ("label", LABEL_TYPES[task])]
    schema = pa.schema([*columns, ("key", pa.uint64())])
    texts: set[int] = set()
    rows = characters = shard = 0
    batch = list(islice(examples, _BATCH_ROWS))
    while batch:
        in_shard = 0
        path = folder / f"rows-{shard:05d}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            while batch and in_shard < LABELLED_SHARD_CHARACTERS:
                keys = [Document(example.text).key for example in batch]
                content = [list(column) for column in zip(*batch, strict=True)]
                writer.write_batch(pa.record_batch([*content, keys], schema=schema))
                texts.update(keys)
                rows += len(batch)
                in_shard += sum(len(example.text) + len(example.pair or "") for example in batch)
                batch = list(islice(examples, _BATCH_ROWS))
        characters += in_shard
        shard += 1
    return {"rows": rows, "texts": len(texts), "characters": characters}
