"""`build_corpus`: a corpus of text, from its sources to blocks of tokens in the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.building.block_encoding import BlockEncoding, block_encoding, block_identity
from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.corpora import HELD_OUT_BY_SOURCE, Corpus
from limbeck.corpus.building.splitting import held_out_bound
from limbeck.corpus.building.tokenising import WAITING, Amount, TokenRows, tokenise
from limbeck.corpus.digests import digest_of
from limbeck.corpus.progress import Progress, waiting_notice
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import (
    DOCUMENT_SCHEMA,
    PARALLEL_SCHEMA,
    document_files,
    read_batches,
    read_documents,
    write_documents,
)
from limbeck.corpus.stored.stored_documents import store_documents

BLOCK_FORMAT = 2
"""Raise it when the same documents would give other blocks: older caches are then built anew."""


def build_corpus(
    settings: CorpusSettings,
    tokenizer: Any,
    *,
    teacher_tokenizer: Any = None,
    whole_tokenizer: Any = None,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Read the sources, tokenise and pack them, and open the result, memory-mapped.

    Two things are cached: the documents of the sources, and the blocks that are made of them with this tokenizer and
    these settings. Stages that cut the same text differently share the documents. A build that was killed continues
    where it was, and gives the same result. Memory does not grow with the corpus.

    Args:
        settings: The sources, and how their text is cut into blocks.
        tokenizer: A `transformers` tokenizer; it is not changed.
        teacher_tokenizer: That of the teacher, where it gives other tokens than the student's: the text is cut by its
            tokens, and the rows have the ids of both. Rows of parallel text have the teacher's side of it only with
            this tokenizer, or as `text_keys`.
        whole_tokenizer: The whole tokenizer from which the student's was cut, where texts are left out that the two
            cut differently.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, or nothing is left after packing.
    """
    cache = cache_root(cache_dir)
    # Refuses what cannot be packed before any text is read.
    encoding = block_encoding(settings, tokenizer, teacher_tokenizer, whole_tokenizer)
    document_folder, document_manifest = store_documents(settings, cache, workers=workers, progress=progress)
    folder = cache / "blocks" / fingerprint([BLOCK_FORMAT, document_folder.name, *block_identity(settings, encoding)])

    def build(aside: Path) -> dict[str, Any]:
        """Write the blocks and held-out documents into the folder of a build, and return the manifest of the corpus."""
        held_below = held_out_bound(document_folder, settings)
        schema = PARALLEL_SCHEMA if settings.teaches_translations else DOCUMENT_SCHEMA
        files = document_files(document_folder)
        # `shards` has the index of the source of each file, in the order of the files.
        sources_in_order: list[int] = document_manifest["shards"]
        # Tokenising needs it where sources differ in their prompts or units.
        source_of_file: dict[Path, int] = {}
        if encoding.uses:
            source_of_file = dict(zip(files, sources_in_order, strict=True))
        blocks = tokenise(
            files,
            aside,
            replace(encoding, held_below=held_below, sources=source_of_file),
            message_without_rows=_nothing_to_train_on(settings, encoding, document_manifest["documents"]),
            workers=workers,
            progress=progress,
            amount=Amount(document_manifest["characters"], "characters"),
        )
        held_out = write_documents(read_documents(document_folder, held_below), aside, schema)

        report = SourceReport.from_dict(document_manifest["report"])
        report.merge(blocks.report)
        number_of_sources = len(settings.places)
        return {
            "format": BLOCK_FORMAT,
            "settings": settings.content(),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": encoding.encoder.fingerprint()},
            "documents": document_manifest["documents"],
            "characters": document_manifest["characters"],
            "sources": document_manifest["sources"],
            "report": report.to_dict(),
            "held_out_documents": held_out.items,
            **_by_source(blocks, sources_in_order, number_of_sources),
            HELD_OUT_BY_SOURCE: _held_out_by_source(files, held_below, blocks, sources_in_order, number_of_sources),
            "splits": blocks.splits,
        }

    build_once(folder, build, goes_on=True, waiting=waiting_notice(progress, WAITING))
    return Corpus(folder, settings.mixing, settings.titles, settings.uses, settings.languages)


def _nothing_to_train_on(settings: CorpusSettings, encoding: BlockEncoding, documents: int) -> str:
    """Return the message for a corpus without a block to train on.

    Args:
        settings: The settings of the corpus.
        encoding: How documents become blocks.
        documents: Number of the documents.
    """
    if encoding.shared is not None:
        return (
            f"Of {counted(documents, 'document')} no text to train on is left: all hold other pieces "
            "than the student's vocabulary (student.vocabulary). Give it more pieces, cut the text into sentences "
            "(unit: sentence), or set student.vocabulary.other_texts: keep."
        )
    return (
        f"The corpus has {counted(documents, 'document')}, but no block of text to train on: give more "
        f"text, a smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller held_out "
        f"(now {settings.held_out})."
    )


def _held_out_by_source(
    files: Sequence[Path], held_below: int, blocks: TokenRows, source_of_file: Sequence[int], sources: int
) -> dict[str, list[int]]:
    """Return the numbers of held-out documents and rows of each source, for the manifest.

    Args:
        files: The stored documents; the files of a source stand together.
        held_below: The key below which documents are held out.
        blocks: Counts of the blocks, file by file.
        source_of_file: Index of the source of each file.
        sources: Number of sources.
    """
    documents_by_source = [0] * sources
    rows_by_source = [0] * sources
    for path, source, rows in zip(files, source_of_file, blocks.held_out_rows_by_file, strict=True):
        for records in read_batches(path):
            is_held_out = records.column("key").to_numpy() < np.uint64(held_below)
            documents_by_source[source] += int(is_held_out.sum())
        rows_by_source[source] += rows
    return {"documents": documents_by_source, "rows": rows_by_source}


def _by_source(blocks: TokenRows, source_of_file: list[int], sources: int) -> Mapping[str, Any]:
    """Return two fields of the manifest: the number of rows to train on, and a hash of the blocks, for each source.

    Args:
        blocks: Counts and hashes of the blocks, file by file; a block is a row, and the files of a source stand
            together.
        source_of_file: Index of the source of each file.
        sources: Number of sources.
    """
    rows_by_source = [0] * sources
    digests_by_source: list[list[str]] = [[] for _ in range(sources)]
    for source, rows, digest in zip(source_of_file, blocks.rows_by_file, blocks.digests, strict=True):
        rows_by_source[source] += rows
        digests_by_source[source].append(digest)
    return {
        "source_rows": rows_by_source,
        "content": [digest_of(digests) for digests in digests_by_source],
    }
