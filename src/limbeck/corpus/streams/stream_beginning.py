"""`store_beginning`: the beginning of a stream is read once, to choose held-out documents and to store a few blocks.

The stored blocks are not trained on: they let a user see the first rows before training.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from limbeck.core.blocks import counted
from limbeck.corpus.building.block_encoding import BlockEncoding
from limbeck.corpus.building.splitting import held_out_bound
from limbeck.corpus.building.tokenising import tokenise
from limbeck.corpus.digests import DIGEST_BYTES, digest_of
from limbeck.corpus.progress import Progress, step_progress
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport, nothing_in
from limbeck.corpus.sources.named_sources import shards_of
from limbeck.corpus.stored.arrow_files import document_files, read_documents, write_documents
from limbeck.corpus.streams.source_blocks import StreamSource
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError

# Documents and characters that are read in order to choose held-out ones, from all sources together. With them, raise
# `STREAM_FORMAT` in `streamed_corpus`.
_BEGINNING_DOCUMENTS = 50_000
_BEGINNING_CHARACTERS = 50_000_000
_DOCUMENTS_TO_SEE = 1000
"""Documents to train on whose blocks are stored, of all sources or of each where they are read differently."""


def store_beginning(
    settings: CorpusSettings,
    sources: Sequence[StreamSource],
    encoding: BlockEncoding,
    folder: Path,
    progress: Progress | None,
) -> dict[str, Any]:
    """Write blocks and held-out documents of the beginning of a stream; return the content of the manifest.

    Args:
        settings: The sources, and how their text is cut into blocks.
        sources: The opened sources.
        encoding: Turns documents into blocks.
        folder: Folder of the files.
        progress: Called as reading advances.

    Raises:
        CorpusError: if a source cannot be read or gives no document, or no block is left to train on.
    """
    # All documents of the beginning are written to a folder that is removed at the end.
    folder_of_beginning = folder / "beginning"
    folder_of_beginning.mkdir(parents=True)
    beginning = _Beginning(sources)
    documents = write_documents(beginning.documents(progress), folder_of_beginning)

    # Documents whose key, a hash of their text, is below this number are held out.
    held_below = held_out_bound(folder_of_beginning, settings)

    # The blocks of the chosen documents. Where the sources have prompts or units, each has files of its own.
    source_of_file = _choose_documents(
        folder_of_beginning, beginning.documents_by_place, held_below, by_source=bool(encoding.uses)
    )
    nothing_to_train_on = (
        f"The beginning of the stream, {counted(documents.items, 'document')}, gives no block of text to train on: "
        f"give more text, a smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller held_out "
        f"(now {settings.held_out})."
    )
    blocks = tokenise(
        list(source_of_file),
        folder,
        replace(encoding, held_below=held_below, sources=source_of_file),
        nothing_to_train_on,
    )

    # The held-out documents are stored as text too. The dictionary has each folder of chosen documents once, in order.
    folders_of_chosen = dict.fromkeys(path.parent for path in source_of_file)
    held_out_documents = chain.from_iterable(read_documents(chosen, below=held_below) for chosen in folders_of_chosen)
    held_out = write_documents(held_out_documents, folder)
    shutil.rmtree(folder_of_beginning)
    beginning.report.merge(blocks.report)
    return {
        "settings": settings.content(),
        "tokenizer": {"fingerprint": encoding.encoder.fingerprint()},
        "documents": documents.items,
        "held_out_documents": held_out.items,
        "held_below": held_below,
        "characters": documents.characters,
        "sources": beginning.documents_by_name(),
        "content": beginning.content(),
        "report": beginning.report.to_dict(),
        "splits": blocks.splits,
    }


class _Beginning:
    """Reads the first documents of each source, and counts them.

    Args:
        sources: The sources.

    Attributes:
        documents_by_place: Number of documents that were read from each source, in the order of the sources.
        report: Everything that was skipped or repaired.
    """

    def __init__(self, sources: Sequence[StreamSource]) -> None:
        self._sources = sources
        self._digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in sources]
        self.documents_by_place = [0] * len(sources)
        self.report = SourceReport()

    def documents(self, progress: Progress | None) -> Iterator[Document]:
        """Iterate over the documents, source by source.

        Raises:
            CorpusError: if a source gives no document.
        """
        most_documents = _BEGINNING_DOCUMENTS // len(self._sources)
        most_characters = _BEGINNING_CHARACTERS // len(self._sources)
        for place, (name, source, _) in enumerate(self._sources):
            report = SourceReport()
            step = step_progress(progress, f"looking into {name}")
            documents = 0
            characters = 0
            for document in source.documents(report, step):
                yield document
                self._digests[place].update(document.key.to_bytes(8, "little"))
                documents += 1
                characters += len(document.text)
                is_enough = documents >= most_documents or characters >= most_characters
                if is_enough:
                    break
            self.report.merge(report)
            self.documents_by_place[place] = documents
            if documents == 0:
                raise CorpusError(nothing_in(name, "text", report))

    def documents_by_name(self) -> dict[str, int]:
        """Return the number of documents read, by the name of their source."""
        documents_by_name: dict[str, int] = {}
        for source, documents in zip(self._sources, self.documents_by_place, strict=True):
            documents_by_name[source.name] = documents_by_name.get(source.name, 0) + documents
        return documents_by_name

    def content(self) -> list[str]:
        """Return a hash of each source: of its shards, and of the documents that were read."""
        content: list[str] = []
        for source, digest in zip(self._sources, self._digests, strict=True):
            content.append(digest_of([json.dumps(shards_of(source.source)), digest.hexdigest()]))
        return content


def _choose_documents(
    folder: Path, documents_by_place: Sequence[int], held_below: int, *, by_source: bool
) -> dict[Path, int]:
    """Write the held-out documents, and the first of the others, to files of their own.

    Args:
        folder: The folder of all documents, source after source. The new folders are below it.
        documents_by_place: Number of documents of each source.
        held_below: Documents with a key below this are held out.
        by_source: Whether each source has a folder, because their prompts or units differ; otherwise all have one, as
            if they were a single source.

    Returns:
        The new files, each with the index of its source; with one folder for all, the index is 0.
    """
    documents_by_source: Sequence[int] = [sum(documents_by_place)]
    if by_source:
        documents_by_source = documents_by_place
    all_documents = read_documents(folder)
    source_of_file: dict[Path, int] = {}
    for source, count in enumerate(documents_by_source):
        chosen_folder = folder / f"chosen-{source}"
        chosen_folder.mkdir()
        # Every source takes its documents from the same iterator, one source after the other.
        documents = islice(all_documents, count)
        write_documents(_choose(documents, held_below), chosen_folder)
        for path in document_files(chosen_folder):
            source_of_file[path] = source
    return source_of_file


def _choose(documents: Iterator[Document], held_below: int) -> Iterator[Document]:
    """Iterate over the held-out documents, each once, and over the first `_DOCUMENTS_TO_SEE` of the others."""
    held_out_keys: set[int] = set()
    others = 0
    for document in documents:
        key = document.key
        if key < held_below:
            if key not in held_out_keys:
                held_out_keys.add(key)
                yield document
        elif others < _DOCUMENTS_TO_SEE:
            others += 1
            yield document
