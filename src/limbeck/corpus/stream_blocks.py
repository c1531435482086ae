"""`SourceBlocks`: the endless sequence of one source's token blocks, made while it is read, from any block on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.cursor import Cursor
from limbeck.corpus.document import Document
from limbeck.corpus.encoder import TokenEncoder
from limbeck.corpus.packing import BlockPacker
from limbeck.corpus.source_report import SourceReport, one_line
from limbeck.corpus.sources import ShardedSource
from limbeck.corpus.units import UNITS
from limbeck.errors import CorpusError

# Documents that are tokenised at once; after a checkpoint as many are tokenised again.
_CHUNK_DOCUMENTS = 32
_CHUNK_CHARACTERS = 100_000


@dataclass(frozen=True)
class Lane:
    """One of the processes that read a stream side by side, each its own part.

    Args:
        index: Which.
        count: How many there are.
    """

    index: int
    count: int


@dataclass(frozen=True)
class BlockMaker:
    """How the text of a stream becomes blocks.

    Args:
        encoder: The tokenizer.
        unit: What a block never crosses.
        packing: Keyword arguments of `BlockPacker`.
        held_below: Documents with a key below this are held out.
    """

    encoder: TokenEncoder
    unit: str
    packing: dict[str, Any]
    held_below: int


class Block(NamedTuple):
    """A block.

    Args:
        ids: Its tokens.
        source: Index of its source.
        number: How often the source had been read to its end before.
    """

    ids: NDArray[np.int32]
    source: int
    number: int


class SourceBlocks(Iterator[Block]):
    """Blocks of one lane's part of a source, pass after pass, in an order that the seed decides.

    Shards are dealt out to the lanes, in another order in every pass, if their number is a multiple of that of the
    lanes; otherwise every lane reads all of them and keeps the documents whose key falls to it.

    Args:
        source: The source.
        index: Its index.
        name: Its name, for messages.
        maker: How text becomes blocks.
        lane: Whose part it is.
        seed: Decides the order of the shards.
        state: What `state` returned at the block to go on from; `None` begins.
    """

    def __init__(
        self,
        source: ShardedSource,
        index: int,
        name: str,
        maker: BlockMaker,
        lane: Lane,
        *,
        seed: int,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._source, self._index, self._name = source, index, name
        self._maker, self._lane, self._seed = maker, lane, seed
        self._packer = BlockPacker(**maker.packing)
        state = state or {}
        self._pass: int = state.get("pass", 0)
        self._cursor = Cursor.from_json(state.get("cursor", Cursor().to_json()))
        self._fruitful: bool = state.get("fruitful", False)
        self.report = SourceReport.from_dict(state.get("report", SourceReport().to_dict()))
        self._packer.restore(state.get("packer", self._packer.state()))
        self._shards = source.shards()
        self._deals = self._shards % lane.count == 0
        self._order = self._make_order()
        self._documents: Iterator[Document] | None = None
        self._blocks: list[list[int]] = []
        self._number = self._pass
        self._chunk = self._snapshot()
        self._taken: int = state.get("taken", 0)
        self._again = self._taken > 0

    def state(self) -> dict[str, Any]:
        """Return the place behind the last block, as plain JSON values: the chunk it is in, and how far in it."""
        return {**self._chunk, "taken": self._taken}

    def close(self) -> None:
        """Close the file that is being read."""
        if isinstance(self._documents, Generator):
            self._documents.close()

    def __next__(self) -> Block:
        if self._again:
            self._read_chunk()
            self._again = False
        while self._taken >= len(self._blocks):
            self._read_chunk()
            self._taken = 0
        ids = np.asarray(self._blocks[self._taken], dtype=np.int32)
        self._taken += 1
        return Block(ids, self._index, self._number)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "pass": self._pass,
            "cursor": self._cursor.to_json(),
            "fruitful": self._fruitful,
            "report": self.report.to_dict(),
            "packer": self._packer.state(),
        }

    def _read_chunk(self) -> None:
        """Tokenise the next documents, all of one shard."""
        self._chunk = self._snapshot()
        texts: list[str] = []
        characters = 0
        while not texts:
            if self._documents is None:
                self._documents = self._open_shard()
            for document in self._documents:
                if self._is_mine(document):
                    texts.append(document.text)
                    characters += len(document.text)
                    if len(texts) == _CHUNK_DOCUMENTS or characters >= _CHUNK_CHARACTERS:
                        break
            else:
                self._documents = None
                self._cursor.next_shard()
        split = UNITS[self._maker.unit]
        units = [unit for text in texts for unit in split(text)]
        self._blocks = list(self._packer.pack(self._maker.encoder.encode(units)))
        self._fruitful = self._fruitful or bool(self._blocks)
        self._number = self._pass

    def _open_shard(self) -> Iterator[Document]:
        """Open the shard that it is the turn of, after the last one the first of the next pass."""
        if self._cursor.shard >= len(self._order):
            if not self._fruitful:
                raise CorpusError(
                    f"The source '{one_line(self._name)}' has no block of text for process {self._lane.index + 1} of "
                    f"the {self._lane.count} that read it: use fewer, build the corpus, or leave the source out."
                )
            self._pass, self._cursor, self._fruitful = self._pass + 1, Cursor(), False
            self._order = self._make_order()
        return self._source.read(self._order[self._cursor.shard], self._cursor.place, self.report)

    def _make_order(self) -> list[int]:
        generator = np.random.default_rng([self._seed, self._index, self._pass])
        order: list[int] = generator.permutation(self._shards).tolist()
        return order[self._lane.index :: self._lane.count] if self._deals else order

    def _is_mine(self, document: Document) -> bool:
        key = document.key
        return key >= self._maker.held_below and (self._deals or key % self._lane.count == self._lane.index)
