"""`build_corpus`: sources and a tokenizer to a `Corpus`, from the cache where it can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.core.files import (
    NothingToBuildError,
    build_once,
    default_cache_dir,
    fingerprint,
    finish_piece,
    read_manifest,
    read_piece,
)
from limbeck.core.workers import map_parallel
from limbeck.corpus.answers import AnswerEncoder
from limbeck.corpus.documents import UNITS, Document, SourceReport, clean_text, one_line
from limbeck.corpus.labelled import TOKEN_TYPES, EncodedRows, RowEncoder, SequenceEncoder
from limbeck.corpus.packing import BlockPacker, PackingCounts, TokenEncoder
from limbeck.corpus.settings import HOW_IT_IS_READ, CorpusSettings, LabelledSettings, LabelledTask, Mix, RowMix
from limbeck.corpus.store import (
    LABEL_TYPES,
    Progress,
    document_files,
    lowest_keys,
    read_batches,
    read_documents,
    read_examples,
    row_files,
    store_documents,
    store_rows,
    write_documents,
)
from limbeck.errors import CorpusError

# `Corpus`: token blocks of a built corpus, memory-mapped, and the raw text that was held out.


class Corpus:
    """A finished corpus, opened from its folder.

    Args:
        path: The folder that `build_corpus` made.
        mix: The shares of its sources; `None` reads every row once an epoch.

    Attributes:
        path: The folder.
        manifest: Counts, settings, tokenizer and report of the build.
        train: Blocks to train on: columns `input_ids` and `length`.
        held_out: Blocks of the held-out documents, the same columns; empty when nothing is held out.

    Raises:
        CorpusError: if the folder is not a complete corpus.
    """

    def __init__(self, path: str | Path, mix: Mix | None = None) -> None:
        self.path = Path(path)
        self.mix = mix
        manifest = read_manifest(self.path)
        if manifest is None or "splits" not in manifest:
            raise CorpusError(f"'{path}' is not a complete corpus: build it with build_corpus.")
        self.manifest: dict[str, Any] = manifest
        self.train: datasets.Dataset = self._open("train")
        self.held_out: datasets.Dataset = self._open("held_out")

    @property
    def tokens(self) -> int:
        """Number of tokens to train on, special tokens included."""
        return int(self.manifest["splits"]["train"]["tokens"])

    @property
    def report(self) -> SourceReport:
        """What was passed over or repaired while the sources were read."""
        return SourceReport.from_dict(self.manifest["report"])

    def row_mix(self, seed: int) -> RowMix | None:
        """Return which rows an epoch has under the mix, or `None` without one.

        Args:
            seed: Decides what is drawn.

        Raises:
            CorpusError: if a source has no row to train on.
        """
        if self.mix is None:
            return None
        rows: list[int] = self.manifest["source_rows"]
        for number, count in enumerate(rows):
            if count == 0:
                name = self.manifest["settings"]["sources"][number]
                raise CorpusError(f"The source '{one_line(name)}' has no block to train on: leave it out of the mix.")
        return RowMix(rows, self.mix.shares(rows), seed)

    def held_out_documents(self) -> list[Document]:
        """Return the text of the held-out documents, in the order of the sources."""
        return list(read_documents(self.path))

    def __repr__(self) -> str:
        return f"Corpus({len(self.train):,} blocks, {self.tokens:,} tokens, {str(self.path)!r})"

    def _open(self, split: str) -> datasets.Dataset:
        files = sorted(self.path.glob(f"{split}-*.arrow"))
        # Opening the files themselves keeps the library's own cache out of it.
        parts = [datasets.Dataset.from_file(str(file)) for file in files]
        return datasets.concatenate_datasets([part for part in parts if len(part)] or parts[:1])


# `LabelledCorpus`: token rows of a labelled corpus, memory-mapped, and the raw text that was held out.


class LabelledCorpus(Corpus):
    """A finished labelled corpus, opened from its folder.

    `train` and `held_out` have the columns `input_ids`, `length`, `labels` (number of the class, value, or first and
    last token of the answer) and, where the tokenizer's model has segments, `token_type_ids`. A question has a row for
    every window of its context.

    `manifest` counts rows as `documents` and `held_out_documents`, and their distinct texts as `texts` and
    `held_out_texts`; `splits` counts token rows as `blocks`. `held_out_documents()` gives each held-out text once,
    followed by the second texts (questions) of its rows, a line each.

    Args:
        path: The folder that `build_labelled_corpus` made.

    Raises:
        CorpusError: if the folder is not a complete labelled corpus.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if "task" not in self.manifest:
            raise CorpusError(f"'{path}' is a corpus of text without labels: open it with Corpus.")
        self.task: LabelledTask = self.manifest["task"]

    def __repr__(self) -> str:
        return f"LabelledCorpus({self.task}, {len(self.train):,} rows, {self.tokens:,} tokens, {str(self.path)!r})"


# Documents to token blocks on disk: one shard of documents is one piece of work, for one process.


SPLITS = ("train", "held_out")
_SCHEMA = pa.schema([("input_ids", pa.list_(pa.int32())), ("length", pa.int32())])
_BATCH_UNITS = 1000
_BATCH_CHARACTERS = 1_000_000
# Tokens of a record batch: opening a corpus touches every batch of it, so there should not be many.
_BATCH_TOKENS = 2**22


@dataclass(frozen=True)
class Shard:
    """One file of documents to tokenise.

    Args:
        documents: The Arrow file of documents.
        folder: Where the files of blocks go, one for each split, named after the number.
        number: Number of the shard.
        held_below: Documents with a key below this are held out.
        unit: Name of the unit that a block never crosses.
        encoder: The tokenizer.
        packing: Keyword arguments of `BlockPacker`.
    """

    documents: Path
    folder: Path
    number: int
    held_below: int
    unit: str
    encoder: TokenEncoder
    packing: dict[str, Any]


def tokenise_shard(shard: Shard) -> dict[str, PackingCounts]:
    """Write the blocks of one shard, unless a killed builder has; return the counts of each split."""
    piece = f"blocks-{shard.number:05d}"
    kept = read_piece(shard.folder, piece)
    if kept is not None:
        return {split: PackingCounts(**kept[split]) for split in SPLITS}
    counts = _tokenise(shard)
    files = [f"{split}-{shard.number:05d}.arrow" for split in SPLITS]
    finish_piece(shard.folder, piece, files, {split: asdict(counts[split]) for split in SPLITS})
    return counts


def _tokenise(shard: Shard) -> dict[str, PackingCounts]:
    split_units = UNITS[shard.unit]
    with ExitStack() as stack:
        writers = {split: stack.enter_context(_BlockWriter(shard, split)) for split in SPLITS}
        for batch in read_batches(shard.documents):
            held = batch.column("key").to_numpy() < np.uint64(shard.held_below)
            units: dict[str, list[str]] = {split: [] for split in SPLITS}
            for text, is_held in zip(batch.column("text").to_pylist(), held.tolist(), strict=True):
                units["held_out" if is_held else "train"].extend(split_units(text))
            for split, writer in writers.items():
                for texts in _batched(units[split]):
                    writer.add(shard.encoder.encode(texts))
        return {split: writer.finish() for split, writer in writers.items()}


class _BlockWriter:
    """Packs units and streams the blocks to a file, a record batch at a time."""

    def __init__(self, shard: Shard, split: str) -> None:
        self._packer = BlockPacker(**shard.packing)
        path = shard.folder / f"{split}-{shard.number:05d}.arrow"
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._file, _SCHEMA)
        self._blocks: list[NDArray[np.int32]] = []
        self._tokens = 0

    def __enter__(self) -> _BlockWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()
        self._file.close()

    def add(self, units: list[list[int]]) -> None:
        for block in self._packer.pack(units):
            self._blocks.append(np.asarray(block, dtype=np.int32))
            self._tokens += len(block)
            if self._tokens >= _BATCH_TOKENS:
                self._flush()

    def finish(self) -> PackingCounts:
        self._packer.finish()
        self._flush()
        return self._packer.counts

    def _flush(self) -> None:
        if self._blocks:
            lengths = np.fromiter(map(len, self._blocks), np.int32, len(self._blocks))
            offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
            ids = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(self._blocks)))
            self._writer.write_batch(pa.record_batch([ids, pa.array(lengths)], schema=_SCHEMA))
            self._blocks, self._tokens = [], 0


def _batched(texts: list[str]) -> Iterator[list[str]]:
    """Cut into batches small enough for the tokenizer's memory, large enough for its threads."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if len(batch) == _BATCH_UNITS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


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


# `build_labelled_corpus`: labelled rows and a tokenizer to a `LabelledCorpus`, from the cache where it can be.


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
