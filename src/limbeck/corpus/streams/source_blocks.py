"""`SourceBlocks`: the blocks of one source of a stream, from any known position on.

Several processes may read a stream at the same time; the part that one of them reads is a *lane*.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.building.block_encoding import BlockEncoding, CutBlock, note_cut_text
from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.source_kinds import ShardedSource
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError

# Documents that are tokenised together. A run that resumes tokenises as many of them again.
_CHUNK_DOCUMENTS = 32
_CHUNK_CHARACTERS = 100_000


@dataclass(frozen=True)
class Lane:
    """The part of a stream that one of several processes reads.

    Args:
        index: Number of the lane, from 0.
        count: Number of all lanes.
    """

    index: int
    count: int


class StreamSource(NamedTuple):
    """A source of a stream, with its share.

    Args:
        name: Name of the source in records and messages.
        source: The source.
        share: Its share of the blocks.
    """

    name: str
    source: ShardedSource
    share: float = 1.0


class Block(NamedTuple):
    """A block of a stream.

    Args:
        ids: Its token ids, special tokens included.
        source: Index of its source.
        earlier_passes: How often the source had been read to its end before this block.
        columns: Values of further columns of its row, see `CutBlock`.
    """

    ids: NDArray[np.int32]
    source: int
    earlier_passes: int
    columns: Mapping[str, Any] = MappingProxyType({})


class SourceBlocks(Iterator[Block]):
    """Blocks of one lane's part of a source, pass after pass, in an order that the seed decides.

    A *pass* reads the source once to its end, shard by shard, and each pass has its own random order of the shards. If
    the number of shards is a multiple of the number of lanes, each lane reads its part of the shards. Otherwise every
    lane reads all shards, and keeps the documents whose key modulo the number of lanes is its index.

    Documents are tokenised together in *chunks*. A stored state is the position in front of a chunk, and the number of
    its blocks that were given: a run that resumes tokenises the chunk again and passes over these blocks.

    Args:
        source: The source.
        index: Its index.
        encoding: How documents become blocks, and which are held out.
        lane: The lane.
        seed: Decides the order of the shards.
        state: The result of `state` behind the block to resume after; `None` begins.

    Attributes:
        report: Everything that was skipped, repaired or cut so far.
    """

    def __init__(
        self,
        source: StreamSource,
        index: int,
        encoding: BlockEncoding,
        lane: Lane,
        seed: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._source = source
        self._index = index
        self._encoding = encoding
        self._lane = lane
        self._seed = seed
        self._shards = source.source.shards()
        # Whether each lane reads its part of the shards; otherwise each reads its part of the documents of all shards.
        self._deals_shards = self._shards % lane.count == 0

        # The position in the source. The keys are those of `_position`, and keep their names, since checkpoints have
        # them. A pass without any block would never end, so it is noted whether a pass has blocks.
        if state is None:
            state = {}
        self._pass: int = state.get("pass", 0)
        self._cursor = Cursor.from_json(state.get("cursor", Cursor().to_json()))
        self._pass_has_blocks: bool = state.get("fruitful", False)
        self.report = SourceReport.from_dict(state.get("report", {}))
        self._packer = encoding.packer(index)
        if "packer" in state:
            self._packer.restore(state["packer"])
        self._shard_order = self._draw_shard_order()
        self._documents: Iterator[Document] | None = None  # Of the shard that is being read.

        # The current chunk: the position in front of it, its pass, its blocks, and how many of these have been given. A
        # run that resumes within a chunk has to tokenise it again.
        self._chunk_state = self._position()
        self._chunk_pass = self._pass
        self._chunk_blocks: list[CutBlock] = []
        self._given_of_chunk: int = state.get("taken", 0)
        self._resumes_within_chunk = self._given_of_chunk > 0

    def state(self) -> dict[str, Any]:
        """Return the position behind the last block, as plain JSON values."""
        return {**self._chunk_state, "taken": self._given_of_chunk}

    def close(self) -> None:
        """Close the file that is being read."""
        if isinstance(self._documents, Generator):
            self._documents.close()

    def __next__(self) -> Block:
        """Return the next block; at the end of the chunk of text in memory, the next chunk is read."""
        if self._resumes_within_chunk:
            self._read_chunk()
            self._resumes_within_chunk = False
        # A chunk may have no block, so the next one is read until there is a block.
        while self._given_of_chunk >= len(self._chunk_blocks):
            self._read_chunk()
            self._given_of_chunk = 0
        block = self._chunk_blocks[self._given_of_chunk]
        self._given_of_chunk += 1
        return Block(block.ids, self._index, self._chunk_pass, block.columns)

    def _position(self) -> dict[str, Any]:
        """Return the position behind the last document that was read, with all that blocks from there on depend on."""
        return {
            "pass": self._pass,
            "cursor": self._cursor.to_json(),
            "fruitful": self._pass_has_blocks,
            "report": self.report.to_dict(),
            "packer": self._packer.state(),
        }

    def _read_chunk(self) -> None:
        """Read and tokenise the next documents; they become the current chunk."""
        self._chunk_state = self._position()
        documents = self._next_documents()
        pieces = [piece for document in documents for piece in self._encoding.split(document, self._index)]
        self._chunk_blocks = list(self._encoding.blocks(pieces, self._packer, self._index))
        for block in self._chunk_blocks:
            note_cut_text(block, self.report)
        self._pass_has_blocks = self._pass_has_blocks or bool(self._chunk_blocks)
        self._chunk_pass = self._pass

    def _next_documents(self) -> list[Document]:
        """Return the documents of a chunk, all of one shard; shards without a document of this lane are passed over.

        At the end of a shard a chunk has fewer documents than elsewhere.
        """
        documents: list[Document] = []
        characters = 0
        while not documents:
            if self._documents is None:
                self._documents = self._open_shard()
            for document in self._documents:
                if not self._is_of_lane(document):
                    continue
                documents.append(document)
                characters += len(document.text)
                if len(documents) == _CHUNK_DOCUMENTS or characters >= _CHUNK_CHARACTERS:
                    return documents
            # The shard has ended.
            self._documents = None
            self._cursor.move(self._cursor.shard + 1)
        return documents

    def _open_shard(self) -> Iterator[Document]:
        """Open the next shard: that at the cursor, or the first of the next pass if this pass is over.

        Raises:
            CorpusError: if the pass that ended had no block.
        """
        is_pass_over = self._cursor.shard >= len(self._shard_order)
        if is_pass_over:
            if not self._pass_has_blocks:
                raise CorpusError(
                    f"The source '{safe_name(self._source.name)}' is too small for {self._lane.count} processes: "
                    f"process {self._lane.index + 1} gets no block of text. Use fewer processes, leave out "
                    "corpus.streaming, or leave the source out."
                )
            self._pass += 1
            self._pass_has_blocks = False
            self._cursor = Cursor()
            self._shard_order = self._draw_shard_order()
        shard = self._shard_order[self._cursor.shard]
        return self._source.source.read(shard, self._cursor, self.report)

    def _draw_shard_order(self) -> list[int]:
        """Draw the order in which this lane reads the shards in a pass."""
        generator = np.random.default_rng([self._seed, self._index, self._pass])
        order: list[int] = generator.permutation(self._shards).tolist()
        if not self._deals_shards:
            return order
        # The shards are dealt to the lanes in turn.
        return order[self._lane.index :: self._lane.count]

    def _is_of_lane(self, document: Document) -> bool:
        """Whether this lane trains on a document: it is not held out, and no other lane has it."""
        key = document.key
        if key < self._encoding.held_below:
            return False
        return self._deals_shards or key % self._lane.count == self._lane.index
