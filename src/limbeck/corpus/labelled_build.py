"""`build_labelled_corpus`: labelled rows and a tokenizer to a `LabelledCorpus`, from the cache where it can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.core.files import NothingToBuildError, build_once, default_cache_dir, fingerprint, finish_piece, read_piece
from limbeck.core.workers import map_parallel
from limbeck.corpus.build import held_out_threshold
from limbeck.corpus.document import Document, clean_text
from limbeck.corpus.document_reading import Progress
from limbeck.corpus.document_store import write_documents
from limbeck.corpus.encoder import TokenEncoder
from limbeck.corpus.labelled_answers import AnswerEncoder
from limbeck.corpus.labelled_corpus import LabelledCorpus
from limbeck.corpus.labelled_encoding import TOKEN_TYPES, EncodedRows, RowEncoder, SequenceEncoder
from limbeck.corpus.labelled_settings import LabelledSettings
from limbeck.corpus.labelled_store import LABEL_TYPES, read_examples, row_files, store_rows
from limbeck.corpus.packing import PackingCounts
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokenising import SPLITS

LABELLED_FORMAT = 1
"""Raise it when the same rows would give other tokens: older caches are then built anew."""


def build_labelled_corpus(
    settings: LabelledSettings,
    tokenizer: Any,
    *,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> LabelledCorpus:
    """Read labelled rows, tokenise them, and open the result, memory-mapped.

    Two things are cached: the rows of the sources, and the tokens made of them with this tokenizer and length.

    Args:
        settings: What to read, and how to make tokens of it.
        tokenizer: A `transformers` tokenizer, a fast one for question answering; it is not changed.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        workers: Processes; the default is one per CPU core.
        progress: Called with the name of the step, what is done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable or empty, a row lacks a column or a label, class names are
            missing, or the tokenizer or the length does not suit the task.
    """
    cache = Path(cache_dir).expanduser() if cache_dir is not None else default_cache_dir()
    encoder = _encoder(settings, tokenizer)
    rows, source_manifest = store_rows(settings, cache, progress=progress)
    kind = [TokenEncoder(tokenizer).fingerprint(), list(tokenizer.model_input_names)]
    kind += [tokenizer.padding_side, tokenizer.truncation_side]
    cut = [settings.length, settings.stride if settings.task == "question_answering" else None, settings.held_out]
    folder = cache / "labelled" / fingerprint([LABELLED_FORMAT, rows.name, kind, cut])

    def build(aside: Path) -> dict[str, Any]:
        keys = np.unique(np.concatenate([part for path in row_files(rows) for _, part in read_examples(path)]))
        held_below = held_out_threshold(keys, settings.held_out, len(keys))
        schema = _schema(settings, tokenizer)
        shards = [
            RowShard(path, aside, number, held_below, encoder, schema) for number, path in enumerate(row_files(rows))
        ]
        report = SourceReport.from_dict(source_manifest["report"])
        counts = {name: PackingCounts() for name in SPLITS}
        if progress is not None:
            progress("tokenising", 0, source_manifest["rows"], "rows")
        for done, (shard_counts, own) in enumerate(map_parallel(encode_shard, shards, workers), start=1):
            counts = {name: counts[name] + shard_counts[name] for name in SPLITS}
            report.merge(own)
            if progress is not None:
                rows_done = source_manifest["rows"] * done // len(shards)
                progress("tokenising", rows_done, source_manifest["rows"], "rows")
        if counts["train"].blocks == 0:
            raise NothingToBuildError(
                f"The corpus has {source_manifest['rows']} rows, but none to train on: give more rows, or a smaller "
                f"held_out (now {settings.held_out})."
            )
        held_rows, documents = _held_out_documents(rows, held_below)
        held_texts, _ = write_documents(documents, aside)
        return {
            "format": LABELLED_FORMAT,
            "task": settings.task,
            "settings": asdict(settings),
            "tokenizer": {"class": type(tokenizer).__name__, "fingerprint": kind[0]},
            "documents": source_manifest["rows"],
            "held_out_documents": held_rows,
            "texts": source_manifest["texts"],
            "held_out_texts": held_texts,
            "characters": source_manifest["characters"],
            "sources": source_manifest["sources"],
            "report": report.to_dict(),
            "splits": {name: asdict(counts[name]) for name in SPLITS},
        }

    waiting = None if progress is None else partial(progress, "waiting for another process that tokenises", 0, None, "")
    build_once(folder, build, goes_on=True, waiting=waiting)
    return LabelledCorpus(folder)


@dataclass(frozen=True)
class RowShard:
    """One file of rows to tokenise.

    Args:
        rows: The Arrow file of rows.
        folder: Where the files of tokens go, one for each split, named after the number.
        number: Number of the shard.
        held_below: Rows on texts with a key below this are held out.
        encoder: Makes tokens of rows.
        schema: Columns of the result.
    """

    rows: Path
    folder: Path
    number: int
    held_below: int
    encoder: RowEncoder
    schema: pa.Schema


def encode_shard(shard: RowShard) -> tuple[dict[str, PackingCounts], SourceReport]:
    """Write the tokens of one shard, unless a killed builder has; return the counts, and what was cut or left out."""
    piece = f"tokens-{shard.number:05d}"
    kept = read_piece(shard.folder, piece)
    if kept is None:
        counts, report = _encode(shard)
        kept = {"counts": {split: asdict(counts[split]) for split in SPLITS}, "report": report.to_dict()}
        finish_piece(shard.folder, piece, [f"{split}-{shard.number:05d}.arrow" for split in SPLITS], kept)
    counts = {split: PackingCounts(**kept["counts"][split]) for split in SPLITS}
    return counts, SourceReport.from_dict(kept["report"])


def _encode(shard: RowShard) -> tuple[dict[str, PackingCounts], SourceReport]:
    counts = {split: PackingCounts() for split in SPLITS}
    report = SourceReport()
    with ExitStack() as stack:
        writers = {}
        for split in SPLITS:
            file = stack.enter_context(pa.OSFile(str(shard.folder / f"{split}-{shard.number:05d}.arrow"), "wb"))
            writers[split] = stack.enter_context(pa.ipc.new_stream(file, shard.schema))
        for examples, keys in read_examples(shard.rows):
            held = keys < np.uint64(shard.held_below)
            for split, chosen in (("train", ~held), ("held_out", held)):
                own = [examples[index] for index in np.flatnonzero(chosen)]
                encoded = shard.encoder.encode(own, report) if own else None
                if encoded is not None and encoded.input_ids:
                    writers[split].write_batch(_batch(encoded, shard.schema))
                    tokens = sum(map(len, encoded.input_ids))
                    counts[split] += PackingCounts(blocks=len(encoded.input_ids), tokens=tokens)
    return counts, report


def _encoder(settings: LabelledSettings, tokenizer: Any) -> RowEncoder:
    if settings.task == "question_answering":
        return AnswerEncoder(tokenizer, settings.length, settings.stride)
    return SequenceEncoder(tokenizer, settings.length, settings.pair_column is not None)


def _schema(settings: LabelledSettings, tokenizer: Any) -> pa.Schema:
    columns = [("input_ids", pa.list_(pa.int32())), ("length", pa.int32()), ("labels", LABEL_TYPES[settings.task])]
    if TOKEN_TYPES in tokenizer.model_input_names:
        columns.append((TOKEN_TYPES, pa.list_(pa.int8())))
    return pa.schema(columns)


def _batch(rows: EncodedRows, schema: pa.Schema) -> pa.RecordBatch:
    columns = [rows.input_ids, list(map(len, rows.input_ids)), rows.labels]
    return pa.record_batch([*columns, *([] if rows.token_type_ids is None else [rows.token_type_ids])], schema=schema)


def _held_out_documents(rows: Path, held_below: int) -> tuple[int, Iterator[Document]]:
    """Return the number of held-out rows, and a document for each of their texts with its second texts."""
    count = 0
    lines: dict[str, list[str]] = {}
    for path in row_files(rows):
        for examples, keys in read_examples(path):
            for index in np.flatnonzero(keys < np.uint64(held_below)):
                example = examples[index]
                count += 1
                seconds = lines.setdefault(example.text, [])
                if example.pair is not None and example.pair not in seconds:
                    seconds.append(example.pair)
    return count, (Document(clean_text("\n".join([text, *seconds]))) for text, seconds in lines.items())
