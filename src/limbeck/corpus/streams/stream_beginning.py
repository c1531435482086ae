"""The beginning of a stream: read once, to hold documents out and to see its first rows."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.blocks import counted
from limbeck.corpus.building import splitting
from limbeck.corpus.building.tokenising import tokenise
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import shards_of
from limbeck.corpus.stored import store
from limbeck.corpus.stored.store import Progress
from limbeck.corpus.streams.stream_source import NamedSource
from limbeck.corpus.text.documents import Document
from limbeck.corpus.tokens.blocks import BlockEncoding
from limbeck.errors import CorpusError

# Documents read to find those to hold out, all sources together, and how many others are kept.
_BEGINNING_DOCUMENTS = 50_000
_BEGINNING_CHARACTERS = 50_000_000
_KEPT_DOCUMENTS = 1000


def store_beginning(
    settings: CorpusSettings,
    sources: Sequence[NamedSource],
    encoding: BlockEncoding,
    folder: Path,
    progress: Progress | None,
) -> dict[str, Any]:
    """Write blocks and held-out documents of the beginning of a stream; return the manifest's content.

    Args:
        settings: The sources, and how to cut them.
        sources: The sources, opened.
        encoding: How documents become blocks.
        folder: Where the files go.
        progress: Called as reading advances.

    Raises:
        CorpusError: if a source cannot be read or gives no document, or no block is left to train on.
    """
    aside = folder / "beginning"
    aside.mkdir(parents=True)
    report = SourceReport()
    per_source: dict[str, int] = {}
    content = [hashlib.blake2b(digest_size=12) for _ in sources]
    read = store.write_documents(_beginnings(sources, per_source, content, report, progress), aside)
    # One more than may be held out, and repeats of them.
    lowest = np.unique(store.lowest_keys(aside, min(read.items, 2 * settings.held_out_documents + 1)))
    held_below = splitting.held_out_threshold(lowest, settings.held_out, settings.held_out_documents)
    documents, of_file = store.read_documents(aside), dict[Path, int]()
    parts = [aside / f"chosen-{source}" for source in range(len(sources) if encoding.uses else 1)]
    for source, (part, count) in enumerate(zip(parts, per_source.values() if encoding.uses else [None], strict=True)):
        part.mkdir()
        store.write_documents(_choose(islice(documents, count), held_below), part)
        of_file |= dict.fromkeys(store.stored_files(part), source)
    splits, _, _, _ = tokenise(
        list(of_file),
        folder,
        replace(encoding, held_below=held_below, sources=of_file),
        f"The beginning of the stream, {counted(read.items, 'document')}, gives no block of text to train on: give "
        f"more text, a smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller held_out "
        f"(now {settings.held_out}).",
    )
    held_out = chain.from_iterable(store.read_documents(part, held_below) for part in parts)
    held = store.write_documents(held_out, folder)
    shutil.rmtree(aside)
    return {
        "settings": settings.content(),
        "tokenizer": {"fingerprint": encoding.encoder.fingerprint()},
        "documents": read.items,
        "held_out_documents": held.items,
        "held_below": held_below,
        "characters": read.characters,
        "sources": per_source,
        "content": [
            store.digest_of([json.dumps(shards_of(named.source)), digest.hexdigest()])
            for named, digest in zip(sources, content, strict=True)
        ],
        "report": report.to_dict(),
        "splits": splits,
    }


def _beginnings(
    sources: Sequence[NamedSource],
    per_source: dict[str, int],
    content: Sequence[hashlib.blake2b],
    report: SourceReport,
    progress: Progress | None,
) -> Iterator[Document]:
    """Iterate over the first documents of each source."""
    for (name, source, _), digest in zip(sources, content, strict=True):
        source_report = SourceReport()
        read = characters = 0
        for document in source.documents(source_report, store.bind_progress(progress, f"looking into {name}")):
            yield document
            digest.update(document.key.to_bytes(8, "little"))
            read += 1
            characters += len(document.text)
            if read >= _BEGINNING_DOCUMENTS // len(sources) or characters >= _BEGINNING_CHARACTERS // len(sources):
                break
        report.merge(source_report)
        per_source[name] = per_source.get(name, 0) + read
        if read == 0:
            raise CorpusError(store.no_text_in(name, "text", source_report))


def _choose(documents: Iterator[Document], held_below: int) -> Iterator[Document]:
    """Keep the documents that are held out, each once, and the first of the others."""
    held: set[int] = set()
    others = 0
    for document in documents:
        key = document.key
        if key < held_below and key not in held:
            held.add(key)
            yield document
        elif key >= held_below and others < _KEPT_DOCUMENTS:
            others += 1
            yield document
