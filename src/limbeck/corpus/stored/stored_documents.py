"""`store_documents`: the documents of sources, read once into the cache and shared by every tokenizer and length.

A corpus may list a source more than once, for example with two prompts. The index of a source in the list is its
*place*. A build that was killed continues from the state of its `SourceReader` behind the last finished file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.cache import NothingToBuildError, build_once, finish_piece, read_piece
from limbeck.core.disk_space import missing_room
from limbeck.corpus.progress import Progress, step_progress, waiting_notice
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.named_sources import open_source
from limbeck.corpus.sources.parallel_text import ParallelText
from limbeck.corpus.sources.source_kinds import HasSize, Source
from limbeck.corpus.stored import arrow_files
from limbeck.corpus.stored.arrow_files import (
    DOCUMENT_SCHEMA,
    PARALLEL_SCHEMA,
    StoredBatch,
    batch_of_documents,
    document_files,
    read_batches,
    write_shards,
)
from limbeck.corpus.stored.seen_keys import AddKeys, seen_keys
from limbeck.corpus.stored.source_content import name_of_build
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document, next_batch
from limbeck.errors import CorpusError

DOCUMENT_FORMAT = 2
"""Raise it when the same sources would give other documents: older caches are then built anew."""
_BATCH_CHARACTERS = 4_000_000
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""
# 2**64 divided by the golden ratio, the usual constant that spreads 64-bit keys.
_SALT = 0x9E3779B97F4A7C15


class ListedSource(NamedTuple):
    """A source at its place in a corpus.

    Args:
        name: Its name.
        source: The source.
        earlier_places: Number of earlier places of the same source, which read it with another prompt or other units.
    """

    name: str
    source: Source
    earlier_places: int


def store_documents(
    settings: CorpusSettings, cache_dir: Path, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[Path, dict[str, Any]]:
    """Read all documents of some sources into a cached folder of Arrow files, unless it is there already.

    A document whose text has appeared before is left out and reported. Each file holds documents of one source.

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
    # The name of the folder follows from the sources and the settings by which they are read.
    sources = _open_sources(settings, workers)
    fingerprints = [listed.source.fingerprint() for listed in sources]
    identity: list[Any] = [DOCUMENT_FORMAT, settings.max_documents, fingerprints]
    # Where each source is listed once, these numbers are all 0 and are no part of the identity, so that folders from
    # before they were counted keep their names.
    earlier_places = [listed.earlier_places for listed in sources]
    if any(earlier_places):
        identity.append(earlier_places)
    name = name_of_build(cache_dir, identity, [listed.source for listed in sources], progress=progress)
    folder = cache_dir / "documents" / name

    build = partial(_write_documents, sources=sources, max_documents=settings.max_documents, progress=progress)
    waiting = waiting_notice(progress, "waiting for another process that reads this text")
    # A build that was killed is continued by the next.
    manifest = build_once(folder, build, goes_on=True, waiting=waiting)
    return folder, manifest


class SourceReader:
    """Reads sources one after the other, in batches without repeated documents; it can resume behind any batch.

    Args:
        sources: The sources.
        max_documents: Most documents to keep; None keeps all.
        state: The result of `state` at the position to resume from; `None` begins.

    Attributes:
        shards: For each file that was written, the place of its source. The caller writes the files and appends to it.
    """

    def __init__(
        self, sources: Sequence[ListedSource], max_documents: int | None, state: dict[str, Any] | None = None
    ) -> None:
        self._sources = sources
        self._max_documents = max_documents
        # The keys are those of `state`. They are stored in folders, so they keep their names.
        if state is None:
            state = {}
        self._current_place: int = state.get("source", 0)
        self._cursor = Cursor.from_json(state.get("cursor", Cursor().to_json()))
        # The documents that were read of the source at each place, repeats included.
        self._documents_read: list[int] = state.get("read", [0] * len(sources))
        # The documents that were given, of all sources so far, and their characters.
        self._documents_given: int = state.get("documents", 0)
        self._characters_given: int = state.get("characters", 0)
        self._report_of_ended_sources = SourceReport.from_dict(state.get("report", {}))
        self._report_of_current_source = SourceReport.from_dict(state.get("own", {}))
        self.shards: list[int] = state.get("shards", [])

    def state(self) -> dict[str, Any]:
        """Return the position behind the last batch that was given, as plain JSON values."""
        return {
            "source": self._current_place,
            "cursor": self._cursor.to_json(),
            "read": self._documents_read,
            "own": self._report_of_current_source.to_dict(),
            **self._counts(),
            "report": self._report_of_ended_sources.to_dict(),
        }

    def manifest(self) -> dict[str, Any]:
        """Return the counts of everything that was read, by source and in all."""
        documents_by_source: dict[str, int] = {}
        # A source may be listed more than once.
        for listed, documents in zip(self._sources, self._documents_read, strict=True):
            documents_by_source[listed.name] = documents_by_source.get(listed.name, 0) + documents
        report = SourceReport.from_dict(self._report_of_ended_sources.to_dict())
        # A build that goes on when there are documents enough does not come to the end of its last source.
        report.merge(self._report_of_current_source)
        return {"sources": documents_by_source, **self._counts(), "report": report.to_dict()}

    def sources(self) -> Iterator[int]:
        """Iterate over the places of the sources that are left; the source at the place becomes the current one.

        The caller must read `batches` to its end before it asks for the next place.

        Raises:
            CorpusError: if a source gives no document.
        """
        while self._current_place < len(self._sources) and not self._is_full():
            yield self._current_place
            # The caller has read the source to its end.
            self._report_of_ended_sources.merge(self._report_of_current_source)
            if self._documents_read[self._current_place] == 0:
                name = self._sources[self._current_place].name
                raise NothingToBuildError(nothing_in(name, "text", self._report_of_current_source))
            self._current_place += 1
            self._cursor = Cursor()
            self._report_of_current_source = SourceReport()

    def batches(self, add_keys: AddKeys, progress: Progress | None) -> Iterator[StoredBatch]:
        """Iterate over the new documents of the current source, from where it was left.

        Args:
            add_keys: Adds the keys of documents to those that were seen.
            progress: Called as reading advances.

        Raises:
            CorpusError: if the source cannot be read.
        """
        listed = self._sources[self._current_place]
        schema = PARALLEL_SCHEMA if isinstance(listed.source, ParallelText) else DOCUMENT_SCHEMA
        step = step_progress(progress, f"reading {listed.name}")
        # The source moves the cursor as it is read, so that `state` has the position behind a batch.
        documents = listed.source.documents(self._report_of_current_source, step, self._cursor)
        while not self._is_full():
            # At most as many documents are read as may still be kept, so that none is read behind the last that is
            # kept, and the counts and the report are those of the text of the corpus. If some were repeats, another
            # batch is read.
            most_items = arrow_files.BATCH_ITEMS
            if self._max_documents is not None:
                most_items = min(most_items, self._max_documents - self._documents_given)
            batch = next_batch(documents, most_items, _BATCH_CHARACTERS, _characters_of)
            if not batch:
                return
            self._documents_read[self._current_place] += len(batch)
            document_by_key = self._new_documents(batch, add_keys)
            # All documents of the batch were repeats.
            if not document_by_key:
                continue
            stored = batch_of_documents(list(document_by_key.values()), list(document_by_key), schema)
            self._documents_given += len(document_by_key)
            self._characters_given += stored.characters
            yield stored

    def _new_documents(self, batch: Sequence[Document], add_keys: AddKeys) -> dict[int, Document]:
        """Return the documents of a batch that were not seen before, by key."""
        document_by_key: dict[int, Document] = {}
        keys = [document.key for document in batch]
        for document, key, is_new in zip(batch, keys, add_keys(keys), strict=True):
            if is_new:
                document_by_key[key] = document
            else:
                beginning = repr(document.text[:_SHOWN_CHARACTERS])
                self._report_of_current_source.note("document that repeats another", beginning)
        return document_by_key

    def _is_full(self) -> bool:
        """Whether the most documents were given; never without such a bound."""
        return self._documents_given == self._max_documents

    def _counts(self) -> dict[str, Any]:
        return {"documents": self._documents_given, "characters": self._characters_given, "shards": self.shards}


def _write_documents(
    folder: Path, *, sources: Sequence[ListedSource], max_documents: int | None, progress: Progress | None
) -> dict[str, Any]:
    """Write the documents of all sources, and return the content of the manifest.

    Args:
        folder: The folder of the build. It may have files that a build which was killed has finished; these stay.
        sources: The sources.
        max_documents: Most documents to keep; None keeps all.
        progress: Called as reading advances.
    """
    is_first_build = not document_files(folder)
    if max_documents is None and is_first_build:
        _check_disk(folder, sources)
    reader = SourceReader(sources, max_documents, _last_state(folder))
    with seen_keys(folder / "seen.sqlite") as add_keys:
        # Documents in the files that an earlier build has finished count as seen. Behind these files may be one that it
        # has not finished, which has no shard.
        for place, path in zip(reader.shards, document_files(folder), strict=False):
            add_keys_of_source = _adder_for_place(sources[place], add_keys)
            for records in read_batches(path):
                add_keys_of_source(records.column("key").to_pylist())

        for place in reader.sources():
            batches = reader.batches(_adder_for_place(sources[place], add_keys), progress)
            files = write_shards(batches, folder, "documents", arrow_files.SHARD_CHARACTERS, first=len(reader.shards))
            # Each file comes when it is complete, and the reader is then behind its last document.
            for path in files:
                reader.shards.append(place)
                finish_piece(folder, path.stem, [path.name], reader.state())
    return {"format": DOCUMENT_FORMAT, **reader.manifest()}


def _check_disk(folder: Path, sources: Sequence[ListedSource]) -> None:
    """Refuse text that the disk of the cache has no room for; sources of unknown size are left out.

    Raises:
        CorpusError: with the numbers.
    """
    text_size = 0
    for listed in sources:
        # Sources of installed packages do not know their size.
        size = listed.source.size() if isinstance(listed.source, HasSize) else None
        text_size += size or 0
    # The documents are about as large as their text, and so are the blocks of tokens that are made of them.
    problem = missing_room(folder, 2 * text_size)
    if problem is not None:
        raise CorpusError(
            f"The text needs {problem} in the cache, for its documents and its blocks of tokens. Make room, or set "
            "$LIMBECK_CACHE to a folder on another disk."
        )


def _open_sources(settings: CorpusSettings, workers: int | None) -> list[ListedSource]:
    """Open the sources in their order, each with the number of its earlier places."""
    sources: list[ListedSource] = []
    for place, name in enumerate(settings.places):
        earlier_places = 0
        # Without uses all places of a source are read alike, and its documents are repeats.
        if settings.uses:
            earlier_places = settings.places[:place].count(name)
        source = open_source(name, settings.text_column, workers, settings.separator)
        sources.append(ListedSource(name, source, earlier_places))
    return sources


def _last_state(folder: Path) -> dict[str, Any] | None:
    """Return the state of `SourceReader` behind the last finished file of a folder; None where no file is finished."""
    state = None
    finished_files = 0
    while (piece := read_piece(folder, f"documents-{finished_files:05d}")) is not None:
        state = piece
        finished_files += 1
    return state


def _adder_for_place(listed: ListedSource, add_keys: AddKeys) -> AddKeys:
    """Return the function that adds the keys of the documents at a source's place.

    A source that is listed again is read in another way, so its documents do not count as repeats of those at its
    earlier places. A salt of the place changes its keys, so that they differ from the earlier ones.

    Args:
        listed: The source at its place.
        add_keys: Adds keys of documents, 64 bits each.
    """
    if listed.earlier_places == 0:
        return add_keys
    salt = listed.earlier_places * _SALT % 2**64

    def add_salted_keys(keys: Sequence[int]) -> list[bool]:
        return add_keys([key ^ salt for key in keys])

    return add_salted_keys


def _characters_of(document: Document) -> int:
    return len(document.text)
