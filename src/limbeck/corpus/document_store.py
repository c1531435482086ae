"""Documents on disk: read from their sources once, shared by every tokenizer and every way to cut them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from limbeck.core.files import build_once, fingerprint, finish_piece, read_piece
from limbeck.corpus.document import Document
from limbeck.corpus.document_reading import DocumentBatch, Progress, Reading
from limbeck.corpus.seen_keys import SeenKeys
from limbeck.corpus.sources import Source, open_source

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
