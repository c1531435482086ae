"""Streams: text that is tokenised while it is trained on.

Only the beginning is stored: the held-out documents and a few blocks. Blocks come window by window; a state of a few
hundred bytes is enough to go on behind any batch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.core.blocks import counted
from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus import build, splitting, store
from limbeck.corpus.batches import group_by_length
from limbeck.corpus.blocks import BlockEncoding, Columns, block_encoding, block_identity
from limbeck.corpus.build import Corpus
from limbeck.corpus.cursor import Cursor
from limbeck.corpus.documents import Document
from limbeck.corpus.messages import safe_name
from limbeck.corpus.mixing import draw_counts
from limbeck.corpus.settings import CorpusSettings, SourceUse
from limbeck.corpus.source_kinds import ShardedSource
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import open_source, shards_of
from limbeck.corpus.store import Progress
from limbeck.errors import CorpusError

STREAM_FORMAT = 1
"""Raise it when the same sources would give other batches."""

# Documents read to find those to hold out, all sources together, and how many others are kept.
_BEGINNING_DOCUMENTS = 50_000
_BEGINNING_CHARACTERS = 50_000_000
_KEPT_DOCUMENTS = 1000
# Documents that are tokenised at once; after a checkpoint as many are tokenised again.
_CHUNK_DOCUMENTS = 32
_CHUNK_CHARACTERS = 100_000


def store_beginning(
    settings: CorpusSettings,
    sources: Sequence[NamedSource],
    encoding: BlockEncoding,
    folder: Path,
    progress: Progress | None,
) -> dict[str, Any]:
    """Write blocks and held-out documents of the beginning of a stream; return the manifest's content.

    Args:
        settings: The sources, and how to cut them.
        sources: The sources, opened.
        encoding: How documents become blocks.
        folder: Where the files go.
        progress: Called as reading advances.

    Raises:
        CorpusError: if a source cannot be read or gives no document, or no block is left to train on.
    """
    aside = folder / "beginning"
    aside.mkdir(parents=True)
    report = SourceReport()
    per_source: dict[str, int] = {}
    content = [hashlib.blake2b(digest_size=12) for _ in sources]
    read = store.write_documents(_beginnings(sources, per_source, content, report, progress), aside)
    # One more than may be held out, and repeats of them.
    lowest = np.unique(store.lowest_keys(aside, min(read.items, 2 * settings.held_out_documents + 1)))
    held_below = splitting.held_out_threshold(lowest, settings.held_out, settings.held_out_documents)
    documents, of_file = store.read_documents(aside), dict[Path, int]()
    parts = [aside / f"chosen-{source}" for source in range(len(sources) if encoding.uses else 1)]
    for source, (part, count) in enumerate(zip(parts, per_source.values() if encoding.uses else [None], strict=True)):
        part.mkdir()
        store.write_documents(_choose(islice(documents, count), held_below), part)
        of_file |= dict.fromkeys(store.stored_files(part), source)
    splits, _, _, _ = build.tokenise(
        list(of_file),
        folder,
        replace(encoding, held_below=held_below, sources=of_file),
        f"The beginning of the stream, {counted(read.items, 'document')}, gives no block of text to train on: give "
        f"more text, a smaller minimum_tokens (now {settings.minimum_tokens}) or a smaller held_out "
        f"(now {settings.held_out}).",
    )
    held_out = chain.from_iterable(store.read_documents(part, held_below) for part in parts)
    held = store.write_documents(held_out, folder)
    shutil.rmtree(aside)
    return {
        "settings": settings.content(),
        "tokenizer": {"fingerprint": encoding.encoder.fingerprint()},
        "documents": read.items,
        "held_out_documents": held.items,
        "held_below": held_below,
        "characters": read.characters,
        "sources": per_source,
        "content": [
            store.digest_of([json.dumps(shards_of(named.source)), digest.hexdigest()])
            for named, digest in zip(sources, content, strict=True)
        ],
        "report": report.to_dict(),
        "splits": splits,
    }


def _beginnings(
    sources: Sequence[NamedSource],
    per_source: dict[str, int],
    content: Sequence[hashlib.blake2b],
    report: SourceReport,
    progress: Progress | None,
) -> Iterator[Document]:
    """Iterate over the first documents of each source."""
    for (name, source, _), digest in zip(sources, content, strict=True):
        own = SourceReport()
        read = characters = 0
        for document in source.documents(own, store.bind_progress(progress, f"looking into {name}")):
            yield document
            digest.update(document.key.to_bytes(8, "little"))
            read += 1
            characters += len(document.text)
            if read >= _BEGINNING_DOCUMENTS // len(sources) or characters >= _BEGINNING_CHARACTERS // len(sources):
                break
        report.merge(own)
        per_source[name] = per_source.get(name, 0) + read
        if read == 0:
            raise CorpusError(store.no_text_in(name, "text", own))


def _choose(documents: Iterator[Document], held_below: int) -> Iterator[Document]:
    """Keep the documents that are held out, each once, and the first of the others."""
    held: set[int] = set()
    others = 0
    for document in documents:
        key = document.key
        if key < held_below and key not in held:
            held.add(key)
            yield document
        elif key >= held_below and others < _KEPT_DOCUMENTS:
            others += 1
            yield document


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


@dataclass
class StreamBatches:
    """Reads blocks window by window: a window is filled, shuffled, cut into batches of similar length, and given.

    A window takes the place of a sliding shuffle buffer, for it begins at a known position of every source: a resumed
    run fills the window that it was in anew, and goes on behind the batches that it had. The state is that position, a
    few hundred bytes, where a sliding buffer would have to be saved as a whole.

    Args:
        corpus: The sources, and the blocks of a window, which are rounded down to whole batches, but one at least.
        lane: The lane.
        batch_size: Blocks of a batch.
        seed: Decides all orders.
        state: The state that came with the batch to go on behind; `None` begins.
    """

    corpus: StreamedCorpus
    lane: Lane
    batch_size: int
    seed: int
    state: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        number = len(self.corpus.sources)
        state = self.state or {"window": 0, "sources": [None] * number, "taken": 0, "drawn": [0] * number}
        self._window: int = state["window"]
        self._taken: int = state["taken"]
        self._drawn: list[int] = list(state["drawn"])
        self._blocks = [
            SourceBlocks(source, index, self.corpus.encoding, self.lane, self.seed, begun)
            for index, (source, begun) in enumerate(zip(self.corpus.sources, state["sources"], strict=True))
        ]

    def __iter__(self) -> Iterator[tuple[list[Block], dict[str, Any]]]:
        """Iterate over batches, each with the state behind it."""
        try:
            while True:
                yield from self._read_window()
        finally:
            for blocks in self._blocks:
                blocks.close()

    def _read_window(self) -> Iterator[tuple[list[Block], dict[str, Any]]]:
        start = {"window": self._window, "sources": [blocks.state() for blocks in self._blocks]}
        generator = np.random.default_rng([self.seed, self.lane.index, self._window])
        window = self._fill(generator)
        lengths = np.array([len(block.ids) for block in window])
        order = generator.permutation(len(window))
        report = self._report().to_dict()
        batches = group_by_length(order, lengths, self.batch_size, generator)
        for number, rows in enumerate(batches[self._taken :], start=self._taken + 1):
            batch = [window[row] for row in rows]
            for block in batch:
                self._drawn[block.source] += 1
            yield batch, {**start, "taken": number, "drawn": list(self._drawn), "report": report}
        self._window, self._taken = self._window + 1, 0

    def _fill(self, generator: np.random.Generator) -> list[Block]:
        size = max(self.corpus.window // self.batch_size, 1) * self.batch_size
        counts = draw_counts(size, [source.share for source in self.corpus.sources], generator.random())
        return [next(blocks) for blocks, count in zip(self._blocks, counts, strict=True) for _ in range(count)]

    def _report(self) -> SourceReport:
        """Join the reports of all sources so far."""
        report = SourceReport()
        for blocks in self._blocks:
            report.merge(blocks.report)
        return report


class StreamedCorpus(Corpus):
    """An endless stream of token blocks.

    It is opened like a corpus whose text is the beginning of the stream: `train` are a few blocks of it, to be seen
    beforehand, and `held_out` those that training never meets. The blocks to train on come from `batches`.

    Args:
        path: The folder that `open_stream` made.
        sources: The sources, with their shares.
        encoding: How documents become blocks, and which are held out.
        window: Blocks that are shuffled together.
        uses: How each source is read; none: all alike.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[NamedSource],
        encoding: BlockEncoding,
        window: int,
        uses: Sequence[SourceUse] = (),
    ) -> None:
        super().__init__(path, titles=[source.name for source in sources], uses=uses)
        self.sources = list(sources)
        self.encoding = encoding
        self.window = window

    def shares(self) -> list[float]:
        """Return the share of each source in what is trained on."""
        return [source.share for source in self.sources]

    def batches(self, lane: Lane, *, batch_size: int, seed: int, state: dict[str, Any] | None = None) -> StreamBatches:
        """Return the batches of one of the processes that read side by side; see `StreamBatches`.

        Args:
            lane: The process, of all that read.
            batch_size: Blocks of a batch.
            seed: Decides the order.
            state: The state that came with the batch to go on behind; `None` begins.
        """
        return StreamBatches(self, lane, batch_size, seed, state)


def open_stream(
    settings: CorpusSettings, tokenizer: Any, *, cache_dir: str | Path | None = None, progress: Progress | None = None
) -> StreamedCorpus:
    """Open sources as a stream: read their beginning, choose held-out documents, and leave the rest where it is.

    A document is held out if its hash falls below a threshold, wherever in the stream it stands. The held-out figures
    are of those at the beginning of the sources. Documents that appear twice are read twice.

    Args:
        settings: The sources, and how to cut them.
        tokenizer: A `transformers` tokenizer; it is not changed.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        progress: Called with the name of the step, the amount done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable, empty, or of a kind that cannot be streamed, or the shares of
            several cannot be known.
    """
    encoding = block_encoding(settings, tokenizer)
    named_sources = zip(settings.titles, settings.places, strict=True)
    sources = [NamedSource(title, _open(name, settings.text_column)) for title, name in named_sources]
    states = [named.source.fingerprint() for named in sources]
    formats = [STREAM_FORMAT, build.BLOCK_FORMAT, store.DOCUMENT_FORMAT]
    values = [formats, states, *block_identity(settings, encoding)]
    folder = build.cache_folder(cache_dir) / "streams" / fingerprint(values)
    manifest = build_once(folder, lambda aside: store_beginning(settings, sources, encoding, aside, progress))
    held_out = replace(encoding, held_below=int(manifest["held_below"]))
    shares = [1.0]
    if len(sources) > 1 and (mix := settings.mixing) is not None:
        shares = mix.shares([named.source.size() if mix.reads_sizes else None for named in sources])
    mixed = [named._replace(share=share) for named, share in zip(sources, shares, strict=True)]
    return StreamedCorpus(folder, mixed, held_out, settings.shuffle_buffer, settings.uses)


def _open(name: str, text_column: str) -> ShardedSource:
    source = open_source(name, text_column)
    if not isinstance(source, ShardedSource):
        raise CorpusError(f"'{safe_name(name)}' is read as a whole, so it cannot be streamed: leave out streaming.")
    return source
