"""Arrow files of documents and of labelled rows: written in shards, and read again.

A folder of documents holds `documents-00000.arrow` and so on, one of labelled rows `rows-00000.arrow`. Beside each text
stands its *key*, a 64-bit hash by which repeats are found and held-out texts are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.core.seals import HashedFile
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.text.documents import Document

Item = TypeVar("Item")
Keys: TypeAlias = Sequence[int] | NDArray[np.uint64]

# A file ends with so many characters. One process tokenises a file at a time, and a build that was killed repeats the
# file that it was at.
SHARD_CHARACTERS = 16_000_000
ROW_SHARD_CHARACTERS = 4_000_000
BATCH_ITEMS = 1000
"""Documents or rows that are written together."""

DOCUMENT_SCHEMA = pa.schema([("text", pa.large_string()), ("title", pa.large_string()), ("key", pa.uint64())])
_TEACHER_TEXT = pa.field("teacher_text", pa.large_string())
PARALLEL_SCHEMA = DOCUMENT_SCHEMA.append(_TEACHER_TEXT)
"""Columns of documents some of which the teacher reads in another language."""


def row_schema(label_type: pa.DataType) -> pa.Schema:
    """Return the columns of stored rows with labels of a type."""
    return pa.schema(
        [("text", pa.large_string()), ("pair", pa.large_string()), ("label", label_type), ("key", pa.uint64())]
    )


class StoredBatch(NamedTuple):
    """Documents or rows in the form in which they are written.

    Args:
        records: Their columns, see `DOCUMENT_SCHEMA` and `row_schema`.
        characters: Characters of their texts.
    """

    records: pa.RecordBatch
    characters: int


class RowBatch(NamedTuple):
    """Labelled rows that were read.

    Args:
        rows: The rows.
        keys: Key of the text of each, `[rows]`.
    """

    rows: list[LabelledRow]
    keys: NDArray[np.uint64]


class Written(NamedTuple):
    """Counts of what was written.

    Args:
        items: Documents or rows.
        characters: Characters of their texts.
        texts: Distinct texts.
    """

    items: int
    characters: int
    texts: int


def document_files(folder: Path) -> list[Path]:
    """Return the files of a folder of documents, in order."""
    return sorted(folder.glob("documents-*.arrow"))


def row_files(folder: Path) -> list[Path]:
    """Return the files of a folder of labelled rows, in order."""
    return sorted(folder.glob("rows-*.arrow"))


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Iterate over the record batches of one file, memory-mapped."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def schema_of(path: Path) -> pa.Schema:
    """Return the columns of one file."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.schema


def read_documents(folder: Path, below: int | None = None) -> Iterator[Document]:
    """Iterate over the documents of a folder.

    Args:
        folder: The folder.
        below: Only documents whose key is below this are given; None gives all.
    """
    for path in document_files(folder):
        for batch in read_batches(path):
            for document in documents_of(batch):
                if below is None or document.key < below:
                    yield document


def documents_of(records: pa.RecordBatch) -> Iterator[Document]:
    """Iterate over the documents of a stored batch."""
    columns = [records.column("text").to_pylist(), records.column("title").to_pylist()]
    if _TEACHER_TEXT.name in records.schema.names:
        columns.append(records.column(_TEACHER_TEXT.name).to_pylist())
    return map(Document, *columns)


def lowest_keys(folder: Path, most: int) -> NDArray[np.uint64]:
    """Return the `most` lowest distinct keys of a folder's documents, sorted; all keys where there are fewer.

    A text may be stored twice: at the beginning of a stream, or by a source that is listed twice.
    """
    lowest = np.empty(0, np.uint64)
    for path in document_files(folder):
        for batch in read_batches(path):
            keys = np.concatenate([lowest, batch.column("key").to_numpy()])
            lowest = np.unique(keys)[:most]
    return lowest


def read_rows(path: Path) -> Iterator[RowBatch]:
    """Iterate over the batches of one file of labelled rows."""
    for batch in read_batches(path):
        yield rows_of(batch)


def rows_of(records: pa.RecordBatch) -> RowBatch:
    """Return the labelled rows of a stored batch."""
    texts = records.column("text").to_pylist()
    pairs = records.column("pair").to_pylist()
    labels = records.column("label").to_pylist()
    rows = []
    for text, pair, label in zip(texts, pairs, labels, strict=True):
        if isinstance(label, list):  # A label of several numbers is a tuple, which Arrow does not have.
            label = tuple(label)
        rows.append(LabelledRow("", text, pair, label))
    return RowBatch(rows, records.column("key").to_numpy())


def batch_of_documents(documents: Sequence[Document], keys: Keys, schema: pa.Schema = DOCUMENT_SCHEMA) -> StoredBatch:
    """Return documents and their keys in the form in which they are written.

    Args:
        documents: The documents.
        keys: Their keys.
        schema: The columns; `PARALLEL_SCHEMA` if some document has a text of the teacher's own.
    """
    columns: list[Any] = [
        [document.text for document in documents],
        [document.title for document in documents],
        pa.array(keys, pa.uint64()),
    ]
    if schema is PARALLEL_SCHEMA:
        columns.append([document.teacher_text for document in documents])
    characters = sum(len(document.text) for document in documents)
    return StoredBatch(pa.record_batch(columns, schema=schema), characters)


def batch_of_rows(rows: Sequence[LabelledRow], keys: Keys, schema: pa.Schema) -> StoredBatch:
    """Return labelled rows and the keys of their texts in the form in which they are written; see `rows_of`."""
    columns: list[Any] = [
        [row.text for row in rows],
        [row.pair for row in rows],
        [row.label for row in rows],
        pa.array(keys, pa.uint64()),
    ]
    characters = sum(len(row.text) + len(row.pair or "") for row in rows)
    return StoredBatch(pa.record_batch(columns, schema=schema), characters)


def write_documents(documents: Iterable[Document], folder: Path, schema: pa.Schema = DOCUMENT_SCHEMA) -> Written:
    """Write documents to the files of a folder; see `batch_of_documents`."""
    batches = _CountedBatches(
        batch_of_documents(batch, [document.key for document in batch], schema) for batch in _in_batches(documents)
    )
    # The generator writes each file when the next one is asked for.
    for _ in write_shards(batches, folder, "documents", SHARD_CHARACTERS):
        pass
    return batches.counts()


def write_rows(rows: Iterable[LabelledRow], folder: Path, schema: pa.Schema) -> Written:
    """Write labelled rows, with the keys of their texts, to the files of a folder."""
    keyed = (RowBatch(batch, _keys_of_texts(batch)) for batch in _in_batches(rows))
    return write_row_batches(keyed, folder, schema)


def write_row_batches(row_batches: Iterable[RowBatch], folder: Path, schema: pa.Schema) -> Written:
    """Write labelled rows with given keys to the files of a folder."""
    batches = _CountedBatches(batch_of_rows(batch.rows, batch.keys, schema) for batch in row_batches)
    # The generator writes each file when the next one is asked for.
    for _ in write_shards(batches, folder, "rows", ROW_SHARD_CHARACTERS):
        pass
    return batches.counts()


def write_shards(
    batches: Iterator[StoredBatch], folder: Path, stem: str, shard_characters: int, first: int = 0
) -> Iterator[Path]:
    """Write batches to `STEM-00000.arrow` and so on; yield each file when it is complete.

    When a file is yielded, no batch behind it has been taken from `batches`. So a caller may store the position of the
    source then: it is the position behind the last text in the files.

    Args:
        batches: The batches, all with the same columns.
        folder: Folder of the files.
        stem: First part of their names.
        shard_characters: A file ends with the batch that reaches so many characters.
        first: Number of the first file.
    """
    for number in count(first):
        batch = next(batches, None)
        if batch is None:
            return
        path = folder / f"{stem}-{number:05d}.arrow"
        with HashedFile(path) as file, pa.ipc.new_stream(file, batch.records.schema) as writer:
            characters = 0
            while batch is not None:
                writer.write_batch(batch.records)
                characters += batch.characters
                if characters >= shard_characters:
                    break
                batch = next(batches, None)
        yield path


class _CountedBatches(Iterator[StoredBatch]):
    """An iterator over batches that counts them as they are taken.

    Args:
        batches: The batches.
    """

    def __init__(self, batches: Iterator[StoredBatch]) -> None:
        self._batches = batches
        self._items = 0
        self._characters = 0
        self._keys: set[int] = set()  # Equal texts have equal keys.

    def __next__(self) -> StoredBatch:
        batch = next(self._batches)
        self._items += len(batch.records)
        self._characters += batch.characters
        self._keys.update(batch.records.column("key").to_pylist())
        return batch

    def counts(self) -> Written:
        """Return the counts of all batches so far."""
        return Written(self._items, self._characters, len(self._keys))


def _in_batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH_ITEMS)):
        yield batch


def _keys_of_texts(rows: Sequence[LabelledRow]) -> NDArray[np.uint64]:
    return np.array([Document(row.text).key for row in rows], np.uint64)
