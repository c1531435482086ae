"""`Reading`: all documents of some sources, batch by batch, without repeats, from any batch on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from limbeck.core.files import NothingToBuildError
from limbeck.corpus.cursor import Cursor
from limbeck.corpus.document import Document
from limbeck.corpus.seen_keys import SeenKeys
from limbeck.corpus.source_report import SourceReport, one_line
from limbeck.corpus.sources import Source

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
