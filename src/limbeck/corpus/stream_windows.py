"""`StreamBatches`: the endless sequence of batches of one lane of a stream, from any batch on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from limbeck.corpus.grouping import group_by_length
from limbeck.corpus.mixing import draw_counts
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import ShardedSource
from limbeck.corpus.stream_blocks import Block, BlockMaker, Lane, SourceBlocks


class NamedSource(NamedTuple):
    """A source and how it takes part.

    Args:
        name: As the settings name it.
        source: The source.
        share: Its share of the blocks.
    """

    name: str
    source: ShardedSource
    share: float


class StreamBatches:
    """Reads blocks window by window: a window is filled, shuffled, cut into batches of similar length, and given.

    A window takes the place of a sliding shuffle buffer, for it begins at a known place of every source: a resumed run
    fills the window that it was in anew, and goes on behind the batches that it had. The state is that place, a few
    hundred bytes, where a sliding buffer would have to be saved as a whole.

    Args:
        sources: The sources, with shares that add up to 1.
        maker: How text becomes blocks.
        lane: Whose part is read.
        window: Blocks of a window; rounded down to whole batches, but one at least.
        batch_size: Blocks of a batch.
        seed: Decides all orders.
        state: What came with the batch to go on behind; `None` begins.
    """

    def __init__(
        self,
        sources: Sequence[NamedSource],
        maker: BlockMaker,
        lane: Lane,
        *,
        window: int,
        batch_size: int,
        seed: int,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._shares = [source.share for source in sources]
        self._batch_size = batch_size
        self._size = max(window // batch_size, 1) * batch_size
        self._lane, self._seed = lane, seed
        state = state or {"window": 0, "sources": [None] * len(sources), "taken": 0, "drawn": [0] * len(sources)}
        self._window: int = state["window"]
        self._taken: int = state["taken"]
        self._drawn: list[int] = list(state["drawn"])
        self._blocks = [
            SourceBlocks(source.source, index, source.name, maker, lane, seed=seed, state=begun)
            for index, (source, begun) in enumerate(zip(sources, state["sources"], strict=True))
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
        generator = np.random.default_rng([self._seed, self._lane.index, self._window])
        window = self._fill(generator)
        lengths = np.array([len(block.ids) for block in window])
        order = generator.permutation(len(window))
        report = self._report().to_dict()
        batches = group_by_length(order, lengths, self._batch_size, generator)
        for number, rows in enumerate(batches[self._taken :], start=self._taken + 1):
            batch = [window[row] for row in rows]
            for block in batch:
                self._drawn[block.source] += 1
            yield batch, {**start, "taken": number, "drawn": list(self._drawn), "report": report}
        self._window, self._taken = self._window + 1, 0

    def _fill(self, generator: np.random.Generator) -> list[Block]:
        counts = draw_counts(self._size, self._shares, generator.random())
        return [next(blocks) for blocks, count in zip(self._blocks, counts, strict=True) for _ in range(count)]

    def _report(self) -> SourceReport:
        """Join what the sources had wrong so far."""
        report = SourceReport()
        for blocks in self._blocks:
            report.merge(blocks.report)
        return report
