"""The beginning of a stream, on disk: what is held out of it, and a few blocks to see beforehand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.corpus.build import held_out_threshold
from limbeck.corpus.document import Document
from limbeck.corpus.document_reading import Progress
from limbeck.corpus.document_store import document_files, lowest_keys, read_documents, write_documents
from limbeck.corpus.encoder import TokenEncoder
from limbeck.corpus.packing import PackingCounts
from limbeck.corpus.settings import HOW_IT_IS_READ, CorpusSettings
from limbeck.corpus.source_report import SourceReport, one_line
from limbeck.corpus.sources import Source
from limbeck.corpus.tokenising import SPLITS, Shard, tokenise_shard
from limbeck.errors import CorpusError

# How much is looked at for documents to hold out, all sources together, and how many others are kept.
_DOCUMENTS = 50_000
_CHARACTERS = 50_000_000
_KEPT_TO_SEE = 1000


@dataclass(frozen=True)
class Cutting:
    """How text becomes blocks.

    Args:
        encoder: The tokenizer.
        unit: What a block never crosses.
        packing: Keyword arguments of `BlockPacker`.
    """

    encoder: TokenEncoder
    unit: str
    packing: dict[str, Any]


def store_beginning(
    settings: CorpusSettings, sources: Sequence[Source], cutting: Cutting, folder: Path, progress: Progress | None
) -> dict[str, Any]:
    """Write blocks and held-out documents of the beginning of a stream; return the manifest's content.

    Args:
        settings: What to read and how to cut it.
        sources: The sources, opened.
        cutting: How text becomes blocks.
        folder: Where the files go.
        progress: Told how reading advances.

    Raises:
        CorpusError: if a source cannot be read or gives no document, or no block is left to train on.
    """
    aside = folder / "beginning"
    chosen = aside / "chosen"
    chosen.mkdir(parents=True)
    report = SourceReport()
    per_source: dict[str, int] = {}
    count, characters = write_documents(_beginnings(settings.sources, sources, per_source, report, progress), aside)
    # One more than may be held out, and repeats of them.
    lowest = np.unique(lowest_keys(aside, min(count, 2 * settings.held_out_documents + 1)))
    held_below = held_out_threshold(lowest, settings.held_out, settings.held_out_documents)
    write_documents(_choose(read_documents(aside), held_below), chosen)
    counts = {split: PackingCounts() for split in SPLITS}
    for number, path in enumerate(document_files(chosen)):
        shard = Shard(path, folder, number, held_below, cutting.unit, cutting.encoder, cutting.packing)
        done = tokenise_shard(shard)
        counts = {split: counts[split] + done[split] for split in SPLITS}
    if counts["train"].blocks == 0:
        raise CorpusError(
            f"The beginning of the stream, {count} documents, gives no block of text to train on: give more text, a "
            f"smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller held_out (now {settings.held_out})."
        )
    held = (document for document in read_documents(chosen) if document.key < held_below)
    held_documents, _ = write_documents(held, folder)
    shutil.rmtree(aside)
    return {
        "settings": {key: value for key, value in asdict(settings).items() if key not in HOW_IT_IS_READ},
        "tokenizer": {"fingerprint": cutting.encoder.fingerprint()},
        "documents": count,
        "held_out_documents": held_documents,
        "held_below": held_below,
        "characters": characters,
        "sources": per_source,
        "report": report.to_dict(),
        "splits": {split: asdict(counts[split]) for split in SPLITS},
    }


def _beginnings(
    names: Sequence[str],
    sources: Sequence[Source],
    per_source: dict[str, int],
    report: SourceReport,
    progress: Progress | None,
) -> Iterator[Document]:
    """Iterate over the first documents of each source."""
    for name, source in zip(names, sources, strict=True):
        own = SourceReport()
        read = characters = 0
        step = None if progress is None else partial(progress, f"looking into {name}")
        for document in source.documents(own, step):
            yield document
            read += 1
            characters += len(document.text)
            if read >= _DOCUMENTS // len(sources) or characters >= _CHARACTERS // len(sources):
                break
        report.merge(own)
        per_source[name] = per_source.get(name, 0) + read
        if read == 0:
            why = f": {'; '.join(own.lines())}" if own.lines() else ""
            raise CorpusError(f"The source '{one_line(name)}' holds no text{why}.")


def _choose(documents: Iterator[Document], held_below: int) -> Iterator[Document]:
    """Keep the documents that are held out, each once, and the first of the others."""
    held: set[int] = set()
    others = 0
    for document in documents:
        key = document.key
        if key < held_below and key not in held:
            held.add(key)
            yield document
        elif key >= held_below and others < _KEPT_TO_SEE:
            others += 1
            yield document
