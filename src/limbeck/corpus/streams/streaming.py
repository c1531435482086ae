"""Streams: text that is tokenised while it is trained on.

Only the beginning is stored: the held-out documents and a few blocks. Blocks come window by window; a state of a few
hundred bytes is enough to go on behind any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.batches.length_groups import group_by_length
from limbeck.corpus.batches.mixing import draw_counts
from limbeck.corpus.building import build
from limbeck.corpus.building.corpora import Corpus
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import CorpusSettings, SourceUse
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_source
from limbeck.corpus.sources.source_kinds import ShardedSource
from limbeck.corpus.stored import store
from limbeck.corpus.stored.store import Progress
from limbeck.corpus.streams.stream_beginning import store_beginning
from limbeck.corpus.streams.stream_source import Block, Lane, NamedSource, SourceBlocks
from limbeck.corpus.tokens.blocks import BlockEncoding, block_encoding, block_identity
from limbeck.errors import CorpusError

STREAM_FORMAT = 1
"""Raise it when the same sources would give other batches."""


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
