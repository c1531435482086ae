"""Documents on disk: read from their sources once, shared by every tokenizer and every way to cut them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from limbeck.corpus.cache import build_once, fingerprint
from limbeck.corpus.document import Document
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import Source, open_source
from limbeck.errors import CorpusError

DOCUMENT_FORMAT = 1
"""Raise it when the same sources would give other documents: older caches are then built anew."""

# Characters of one file: the piece of work of one tokenising process.
SHARD_CHARACTERS = 16_000_000
_BATCH_DOCUMENTS = 1000
_BATCH_CHARACTERS = 4_000_000
_SCHEMA = pa.schema([("text", pa.large_string()), ("title", pa.large_string()), ("key", pa.uint64())])

Progress = Callable[[str, int, int | None], None]
"""Called with the name of the step, what is done, and the total or `None` if it is not known."""


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

    A document whose text has appeared before is left out and counted.

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
        report = SourceReport()
        per_source: dict[str, int] = {}
        documents = _unique(_read(sources, per_source, report, progress), report, max_documents)
        count, characters = write_documents(documents, aside)
        return {
            "format": DOCUMENT_FORMAT,
            "sources": per_source,
            "documents": count,
            "characters": characters,
            "report": report.to_dict(),
        }

    return folder, build_once(folder, build)


def write_documents(documents: Iterable[Document], folder: Path) -> tuple[int, int]:
    """Write documents to `documents-00000.arrow` and so on; return how many, and their characters."""
    iterator = iter(documents)
    count = characters = shard = 0
    batch = _next_batch(iterator)
    while batch:
        path = folder / f"documents-{shard:05d}.arrow"
        in_shard = 0
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
            while batch and in_shard < SHARD_CHARACTERS:
                texts, titles = [list(column) for column in zip(*batch, strict=True)]
                keys = [document.key for document in batch]
                writer.write_batch(pa.record_batch([texts, titles, keys], schema=_SCHEMA))
                count += len(batch)
                in_shard += sum(map(len, texts))
                batch = _next_batch(iterator)
        characters += in_shard
        shard += 1
    return count, characters


def document_files(folder: Path) -> list[Path]:
    """Return the files that hold the documents of a folder, in order."""
    return sorted(folder.glob("documents-*.arrow"))


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Iterate over the record batches of one file, memory-mapped; columns `text`, `title` and `key`."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def read_keys(folder: Path) -> npt.NDArray[np.uint64]:
    """Return the key of every document of a folder, in order."""
    keys = [batch.column("key").to_numpy() for path in document_files(folder) for batch in read_batches(path)]
    return np.concatenate(keys) if keys else np.empty(0, np.uint64)


def read_documents(folder: Path) -> Iterator[Document]:
    """Iterate over the documents of a folder."""
    for path in document_files(folder):
        for batch in read_batches(path):
            texts, titles = batch.column("text").to_pylist(), batch.column("title").to_pylist()
            yield from map(Document, texts, titles)


def _read(
    sources: Sequence[tuple[str, Source]],
    per_source: dict[str, int],
    report: SourceReport,
    progress: Progress | None,
) -> Iterator[Document]:
    for name, source in sources:
        per_source[name] = 0
        own = SourceReport()
        step = None if progress is None else _step(progress, f"reading {name}")
        for document in source.documents(own, step):
            per_source[name] += 1
            yield document
        report.merge(own)
        if per_source[name] == 0:
            problems = own.lines()
            why = f": {'; '.join(problems)}" if problems else ""
            raise CorpusError(f"The source '{name}' holds no text{why}.")


def _unique(documents: Iterable[Document], report: SourceReport, max_documents: int | None) -> Iterator[Document]:
    seen: set[int] = set()
    for document in documents:
        if document.key in seen:
            report.note("document that repeats another", repr(document.text[:40]))
            continue
        seen.add(document.key)
        yield document
        if len(seen) == max_documents:
            return


def _next_batch(documents: Iterator[Document]) -> list[Document]:
    batch = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            break
    return batch


def _step(progress: Progress, name: str) -> Callable[[int, int | None], None]:
    return lambda done, total: progress(name, done, total)
