"""The blocks of one source of a stream, from a known position on."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.source_kinds import ShardedSource
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document
from limbeck.corpus.tokens.blocks import BlockEncoding, Columns
from limbeck.errors import CorpusError

# Documents that are tokenised at once; after a checkpoint as many are tokenised again.
_CHUNK_DOCUMENTS = 32
_CHUNK_CHARACTERS = 100_000


@dataclass(frozen=True)
class Lane:
    """One of the processes that read a stream side by side, each another part.

    Args:
        index: Its number, from 0.
        count: Number of all lanes.
    """

    index: int
    count: int


class NamedSource(NamedTuple):
    """A source and how it takes part.

    Args:
        name: What records and messages call it.
        source: The source.
        share: Its share of the blocks.
    """

    name: str
    source: ShardedSource
    share: float = 1.0


class Block(NamedTuple):
    """A block.

    Args:
        ids: Its tokens.
        source: Index of its source.
        number: How often the source had been read to its end before.
        columns: Further columns of its row.
    """

    ids: NDArray[np.int32]
    source: int
    number: int
    columns: Mapping[str, Any] = MappingProxyType({})


@dataclass
class SourceBlocks(Iterator[Block]):
    """Blocks of one lane's part of a source, pass after pass, in an order that the seed decides.

    Shards are dealt out to the lanes, in another order in every pass, if their number is a multiple of that of the
    lanes; otherwise every lane reads all of them and keeps the documents whose key falls to it.

    Args:
        source: The source.
        index: Its index.
        encoding: How documents become blocks, and which are held out.
        lane: The lane.
        seed: Decides the order of the shards.
        begun: The result of `state` at the block to go on from; `None` begins.
    """

    source: NamedSource
    index: int
    encoding: BlockEncoding
    lane: Lane
    seed: int
    begun: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._packer = self.encoding.packer(self.index)
        state = self.begun or {}
        self._pass: int = state.get("pass", 0)
        self._cursor = Cursor.from_json(state.get("cursor", Cursor().to_json()))
        self._fruitful: bool = state.get("fruitful", False)
        self.report = SourceReport.from_dict(state.get("report", {}))
        self._packer.restore(state.get("packer", self._packer.state()))
        self._shards = self.source.source.shards()
        self._deals = self._shards % self.lane.count == 0
        self._order = self._make_order()
        self._documents: Iterator[Document] | None = None
        self._blocks: list[tuple[NDArray[np.int32], Columns]] = []
        self._number = self._pass
        self._chunk = self._snapshot()
        self._taken: int = state.get("taken", 0)
        self._again = self._taken > 0

    def state(self) -> dict[str, Any]:
        """Return the position behind the last block, as plain JSON values: its chunk, and the blocks taken of it."""
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
        ids, columns = self._blocks[self._taken]
        self._taken += 1
        return Block(ids, self.index, self._number, columns)

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
        documents: list[Document] = []
        characters = 0
        while not documents:
            if self._documents is None:
                self._documents = self._open_shard()
            for document in self._documents:
                if self._is_mine(document):
                    documents.append(document)
                    characters += len(document.text)
                    if len(documents) == _CHUNK_DOCUMENTS or characters >= _CHUNK_CHARACTERS:
                        break
            else:
                self._documents = None
                self._cursor.move(self._cursor.shard + 1)
        pieces = [piece for document in documents for piece in self.encoding.split(document, self.index)]
        self._blocks = list(self.encoding.blocks(pieces, self._packer, self.index))
        self._fruitful = self._fruitful or bool(self._blocks)
        self._number = self._pass

    def _open_shard(self) -> Iterator[Document]:
        """Open the shard that it is the turn of, after the last one the first of the next pass."""
        if self._cursor.shard >= len(self._order):
            if not self._fruitful:
                raise CorpusError(
                    f"The source '{safe_name(self.source.name)}' has no block of text for process "
                    f"{self.lane.index + 1} of the {self.lane.count} that read it: use fewer processes, build the "
                    "corpus, or leave the source out."
                )
            self._pass, self._cursor, self._fruitful = self._pass + 1, Cursor(), False
            self._order = self._make_order()
        return self.source.source.read(self._order[self._cursor.shard], self._cursor, self.report)

    def _make_order(self) -> list[int]:
        generator = np.random.default_rng([self.seed, self.index, self._pass])
        order: list[int] = generator.permutation(self._shards).tolist()
        return order[self.lane.index :: self.lane.count] if self._deals else order

    def _is_mine(self, document: Document) -> bool:
        key = document.key
        return key >= self.encoding.held_below and (self._deals or key % self.lane.count == self.lane.index)
