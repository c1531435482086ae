"""Documents to token blocks on disk: one shard of documents is one piece of work, for one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.core.files import finish_piece, read_piece
from limbeck.corpus.document_store import read_batches
from limbeck.corpus.encoder import TokenEncoder
from limbeck.corpus.packing import BlockPacker, PackingCounts
from limbeck.corpus.units import UNITS

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
