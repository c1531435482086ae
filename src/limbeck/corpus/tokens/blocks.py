"""Blocks: how the documents of each source become token rows, with their prompts and the kinds of their pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limbeck.corpus.rows.labelled_rows import TOKEN_TYPES
from limbeck.corpus.settings import CorpusSettings, SourceUse
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored import store
from limbeck.corpus.text.documents import Document, next_batch
from limbeck.corpus.text.pieces import UNITS, Piece, split_pieces
from limbeck.corpus.tokens.packing import BlockPacker, PackingCounts, segments_of
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS, Reading
from limbeck.corpus.tokens.token_encoder import TokenEncoder

SPLITS = ("train", "held_out")
UNIT = "unit"
"""Column of the kind of a block's piece, by its number among `UNITS`; where pieces have kinds."""
BLOCK_COLUMNS = [pa.field("input_ids", pa.list_(pa.int32())), pa.field("length", pa.int32())]
SEGMENTS = pa.field(TOKEN_TYPES, pa.list_(pa.int8()))
_KINDS = tuple(UNITS)
_BATCH_UNITS = 1000
_BATCH_CHARACTERS = 1_000_000
# Tokens of a record batch: opening a corpus touches every batch of it, so there should not be many.
_BATCH_TOKENS = 2**22
_PLAIN = SourceUse()

Columns: TypeAlias = Mapping[str, Any]
"""Columns of a block beside its tokens and their number: a number each, or an array."""


@dataclass(frozen=True)
class BlockEncoding:
    """Documents to token blocks; like `RowEncoding` it can be sent to another process.

    Args:
        readings: How both sides read a text, or the student and behind it the teacher, which then cuts the blocks.
        unit: Name of the unit that a block never crosses.
        packing: Keyword arguments of `BlockPacker`; plain JSON values.
        held_below: Documents with a key below this are held out.
        uses: How each source is read; none: all alike, without prompts and kinds of pieces.
        sources: Of each stored file the index of its source, where they are not alike.
    """

    readings: tuple[Reading, ...]
    unit: str
    packing: dict[str, Any]
    held_below: int = 0
    uses: tuple[SourceUse, ...] = ()
    sources: Mapping[Path, int] = field(default_factory=dict)

    @property
    def encoder(self) -> TokenEncoder:
        """The tokenizer by which blocks are cut."""
        return self.readings[-1].encoder

    @property
    def schema(self) -> pa.Schema:
        """Columns of the blocks."""
        columns = [*BLOCK_COLUMNS]
        if self._paired:
            columns.append(SEGMENTS)
        if self._has_kinds:
            columns.append(pa.field(UNIT, pa.int8()))
        if self._has_prompts:
            columns.append(pa.field(PROMPT, pa.int32()))
        if self._reads_apart:
            columns.append(pa.field(TEACHER_IDS, pa.list_(pa.int32())))
        return pa.schema(columns)

    def packer(self, source: int) -> BlockPacker:
        """Return a packer for documents of a source."""
        return BlockPacker(**self.packing, prompt=self.encoder.encode([self._use(source).prompt])[0].tolist())

    def split(self, document: Document, source: int) -> list[Piece]:
        """Cut a document of a source into the pieces that blocks are made of."""
        kinds = self._use(source).units
        if kinds:
            return split_pieces(document, kinds)
        return [Piece(text, self.unit) for text in UNITS[self.unit](document.text)]

    def blocks(
        self, pieces: Sequence[Piece], packer: BlockPacker, source: int
    ) -> Iterator[tuple[NDArray[np.int32], Columns]]:
        """Iterate over the blocks that are complete after some pieces of a source, each with its further columns.

        Args:
            pieces: As `split` gives them.
            packer: That of the source.
            source: Its index.
        """
        texts = [piece.text for piece in pieces]
        if self._paired:
            separator = self.packing["separator"]
            for ids in packer.pack(self.encoder.encode_sentences(texts)):
                yield ids, {TOKEN_TYPES: segments_of(ids, separator)}
            return
        if not (self._has_kinds or self._has_prompts):
            for ids in packer.pack(self.encoder.encode(texts)):
                yield ids, {}
            return

        # Where both sides read alike, one reading stands for both.
        prompt = self._use(source).prompt
        cut_ids = self.readings[-1].encode(texts, prompt)
        student_ids = cut_ids
        if self._reads_apart and prompt:
            student_ids = self.readings[0].encode(texts, prompt, cut_ids)
        for piece, cut, own in zip(pieces, cut_ids, student_ids, strict=True):
            for ids, columns in self._blocks_of_piece(cut, own, packer, prompted=bool(prompt)):
                if self._has_kinds:
                    columns[UNIT] = _KINDS.index(piece.kind)
                yield ids, columns

    def _blocks_of_piece(
        self, cut: NDArray[np.int32], own: NDArray[np.int32], packer: BlockPacker, *, prompted: bool
    ) -> Iterator[tuple[NDArray[np.int32], dict[str, Any]]]:
        """Iterate over the blocks of one piece, as the student reads them, each with its columns of prompts.

        Args:
            cut: Ids of the piece, as the side reads it that cuts the blocks.
            own: Ids of the piece, as the student reads it.
            packer: Cuts the blocks.
            prompted: Whether the piece has a prompt.
        """
        # Pooling leaves out the prompt with the special tokens around it.
        skipped = len(self.encoder.prefix) + len(packer.prompt) + max(len(self.encoder.suffix) - 1, 0)
        behind_first = 0  # Ids of the piece behind its first block.
        for number, ids in enumerate(packer.pack([cut])):
            columns: dict[str, Any] = {}
            if self._has_prompts:
                columns[PROMPT] = skipped if prompted else 0
            if not self._reads_apart:
                yield ids, columns
                continue
            content = ids[len(packer.prefix) : len(ids) - len(packer.suffix)]
            if number == 0:
                # A tokenizer may join prompt and text, so the first block of the student is found from its end.
                behind_first = len(cut) - len(content)
                content = own[: max(len(own) - behind_first, 0)]
            else:
                content = content[len(packer.prompt) :]
            columns[TEACHER_IDS] = ids
            yield np.asarray([*packer.prefix, *content, *packer.suffix], dtype=np.int32), columns

    def _use(self, source: int) -> SourceUse:
        return self.uses[source] if self.uses else _PLAIN

    @property
    def _paired(self) -> bool:
        return "pairs" in self.packing

    @property
    def _reads_apart(self) -> bool:
        """Whether student and teacher read different tokens."""
        return len(self.readings) > 1

    @cached_property
    def _has_kinds(self) -> bool:
        return any(use.units for use in self.uses)

    @cached_property
    def _has_prompts(self) -> bool:
        return any(use.prompt for use in self.uses)

    def batches(
        self, path: Path, counts: dict[str, PackingCounts], report: SourceReport
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Iterate over the record batches of one stored file, each with the name of its split.

        Args:
            path: The Arrow file of documents.
            counts: Receives the counts of each split.
            report: Receives everything that is cut or left out; of documents nothing is.
        """
        source = self.sources.get(path, 0)
        packers = {split: self.packer(source) for split in SPLITS}
        pending: dict[str, list[tuple[NDArray[np.int32], Columns]]] = {split: [] for split in SPLITS}
        tokens = dict.fromkeys(SPLITS, 0)
        for batch in store.read_batches(path):
            held = (batch.column("key").to_numpy() < np.uint64(self.held_below)).tolist()
            pieces: dict[str, list[Piece]] = {split: [] for split in SPLITS}
            documents = map(Document, batch.column("text").to_pylist(), batch.column("title").to_pylist())
            for document, is_held in zip(documents, held, strict=True):
                pieces["held_out" if is_held else "train"].extend(self.split(document, source))
            for split in SPLITS:
                waiting = iter(pieces[split])
                # Small enough for the tokenizer's memory, large enough for its threads.
                while some := next_batch(waiting, _BATCH_UNITS, _BATCH_CHARACTERS, lambda piece: len(piece.text)):
                    for block in self.blocks(some, packers[split], source):
                        pending[split].append(block)
                        tokens[split] += len(block[0])
                        if tokens[split] >= _BATCH_TOKENS:
                            yield split, self._record_batch(pending[split])
                            pending[split], tokens[split] = [], 0
        for split in SPLITS:
            packers[split].finish()
            counts[split] = packers[split].counts
            if pending[split]:
                yield split, self._record_batch(pending[split])

    def _record_batch(self, blocks: list[tuple[NDArray[np.int32], Columns]]) -> pa.RecordBatch:
        schema = self.schema
        rows = [{"input_ids": ids, "length": len(ids), **columns} for ids, columns in blocks]
        return pa.record_batch([_column([row[f.name] for row in rows], f.type) for f in schema], schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    lengths = np.fromiter(map(len, values), np.int32, len(values))
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(values)))


def block_encoding(settings: CorpusSettings, tokenizer: Any) -> BlockEncoding:
    """Return how documents become blocks under these settings.

    Raises:
        CorpusError: if text cannot be packed so with this tokenizer.
    """
    encoder = TokenEncoder(tokenizer)
    packing: dict[str, Any] = {
        "length": settings.length,
        "prefix": encoder.prefix,
        "suffix": encoder.suffix,
        "minimum": settings.minimum_tokens,
        "join": settings.join,
        "separator": encoder.separator,
    }
    if settings.pairs:
        packing["pairs"] = True  # Only then, so that fingerprints without it are as they were.
    uses = settings.uses if settings.has_pieces else ()
    readings = [Reading(encoder)]
    if not settings.student_reads_prompts and any(use.prompt for use in uses):
        readings = [Reading(encoder, reads_prompts=False), Reading(encoder)]
    encoding = BlockEncoding(tuple(readings), settings.unit, packing, uses=uses)
    for source in range(max(len(uses), 1)):
        encoding.packer(source)
    return encoding


def block_identity(settings: CorpusSettings, encoding: BlockEncoding) -> list[Any]:
    """Return plain JSON values that decide the blocks of given documents."""
    split = {"unit": settings.unit, "held_out": settings.held_out, "most_held": settings.held_out_documents}
    cutting = [settings.cutting] if settings.cutting else []
    return [encoding.encoder.fingerprint(), encoding.packing, split, *cutting]
