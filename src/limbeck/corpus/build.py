"""`build_corpus`: sources and a tokenizer to a `Corpus`, from the cache where it can be."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.files import NothingToBuildError, build_once, default_cache_dir, fingerprint
from limbeck.core.workers import map_parallel
from limbeck.corpus.corpus import Corpus
from limbeck.corpus.document_reading import Progress
from limbeck.corpus.document_store import (
    document_files,
    lowest_keys,
    read_documents,
    store_documents,
    write_documents,
)
from limbeck.corpus.encoder import TokenEncoder
from limbeck.corpus.packing import BlockPacker, PackingCounts
from limbeck.corpus.settings import HOW_IT_IS_READ, CorpusSettings
from limbeck.corpus.tokenising import SPLITS, Shard, tokenise_shard

BLOCK_FORMAT = 2
"""Raise it when the same documents would give other blocks: older caches are then built anew."""

_KEYS = 2**64


def build_corpus(
    settings: CorpusSettings,
    tokenizer: Any,
    *,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Read the sources, tokenise and pack them, and open the result, memory-mapped.

    Two things are cached: the documents of the sources, and the blocks made of them with this tokenizer and
    these settings. Stages that cut the same text differently read it once. A build that was killed goes on where it
    was, to the same result. Memory does not grow with the corpus.

    Args:
        settings: What to read and how to cut it.
        tokenizer: A `transformers` tokenizer; it is not changed.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, what is done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, or nothing is left after packing.
    """
    cache = Path(cache_dir).expanduser() if cache_dir is not None else default_cache_dir()
    encoder = TokenEncoder(tokenizer)
    packing = block_packing(settings, encoder)  # Refuses what cannot be packed before any text is read.
    documents, source_manifest = store_documents(
        settings.sources,
        cache,
        text_column=settings.text_column,
        max_documents=settings.max_documents,
        workers=workers,
        progress=progress,
    )
    split = {"unit": settings.unit, "held_out": settings.held_out, "most_held": settings.held_out_documents}
    folder = cache / "blocks" / fingerprint([BLOCK_FORMAT, documents.name, encoder.fingerprint(), packing, split])

    def build(aside: Path) -> dict[str, Any]:
        # Whatever the share, the threshold lies among the lowest keys that may be held out.
        lowest = lowest_keys(documents, settings.held_out_documents + 1)
        held_below = held_out_threshold(lowest, settings.held_out, settings.held_out_documents)
        shards = [
            Shard(path, aside, number, held_below, settings.unit, encoder, packing)
            for number, path in enumerate(document_files(documents))
        ]
        counts = {name: PackingCounts() for name in SPLITS}
        rows: list[int] = []
        characters = source_manifest["characters"]
        if progress is not None:
            progress("tokenising", 0, characters, "characters")
        for done, shard_counts in enumerate(map_parallel(tokenise_shard, shards, workers), start=1):
            counts = {name: counts[name] + shard_counts[name] for name in SPLITS}
            rows.append(shard_counts["train"].blocks)
            if progress is not None:
                progress("tokenising", characters * done // len(shards), characters, "characters")
        if counts["train"].blocks == 0:
            raise NothingToBuildError(
                f"The corpus has {source_manifest['documents']} documents, but no block of text to train on: "
                f"give more text, a smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller "
                f"held_out (now {settings.held_out})."
            )
        held = (document for document in read_documents(documents) if document.key < held_below)
        held_documents, _ = write_documents(held, aside)
        return {
            "format": BLOCK_FORMAT,
            "settings": {key: value for key, value in asdict(settings).items() if key not in HOW_IT_IS_READ},
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": encoder.fingerprint()},
            "documents": source_manifest["documents"],
            "held_out_documents": held_documents,
            "characters": source_manifest["characters"],
            "sources": source_manifest["sources"],
            "source_rows": _rows_of_sources(len(settings.sources), source_manifest["shards"], rows),
            "report": source_manifest["report"],
            "splits": {name: asdict(counts[name]) for name in SPLITS},
        }

    waiting = None if progress is None else partial(progress, "waiting for another process that tokenises", 0, None, "")
    build_once(folder, build, goes_on=True, waiting=waiting)
    return Corpus(folder, settings.mix)


def block_packing(settings: CorpusSettings, encoder: TokenEncoder) -> dict[str, Any]:
    """Return the keyword arguments of `BlockPacker`; plain JSON values.

    Raises:
        CorpusError: if text cannot be packed so with this tokenizer.
    """
    packing: dict[str, Any] = {
        "length": settings.length,
        "prefix": encoder.prefix,
        "suffix": encoder.suffix,
        "minimum": settings.minimum_tokens,
        "join": settings.join,
        "separator": encoder.separator,
    }
    BlockPacker(**packing)
    return packing


def _rows_of_sources(sources: int, shards: list[int], rows: list[int]) -> list[int]:
    """Return the number of rows of each source; they stand in the order of the sources."""
    totals = [0] * sources
    for source, count in zip(shards, rows, strict=True):
        totals[source] += count
    return totals


def held_out_threshold(keys: Any, share: float, most: int) -> int:
    """Return the key below which documents are held out.

    A share of a hash's range is that share of the documents whatever else is in the corpus. When that is none
    of a small corpus, its lowest key is held out; when it is too many, the lowest `most` are.

    Args:
        keys: Key of every document, uint64; no two are equal.
        share: Share to hold out, below 1.
        most: Most documents to hold out.
    """
    if share == 0 or most == 0 or len(keys) < 2:
        return 0
    threshold = int(share * _KEYS)
    wanted = min(max(int(np.count_nonzero(keys < np.uint64(threshold))), 1), most, len(keys) - 1)
    # Between two neighbours any threshold gives the same documents; the share's own is the clearest.
    lowest = np.sort(keys)
    return min(max(threshold, int(lowest[wanted - 1]) + 1), int(lowest[wanted]))
