"""`StreamBatches`: the blocks of all sources of a stream in shuffled batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from limbeck.corpus.batches.length_groups import group_by_length
from limbeck.corpus.batches.mixing import draw_counts
from limbeck.corpus.building.block_encoding import BlockEncoding
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.streams.source_blocks import Block, Lane, SourceBlocks, StreamSource


class StreamBatches:
    """Reads blocks window by window: a window is filled, shuffled, and cut into batches of similar length.

    A window is used instead of a sliding shuffle buffer because it begins at a known position of every source. A run
    that resumes fills its window again, and passes over the batches that it had. So the state is that position, a few
    hundred bytes, while a sliding buffer would have to be stored with all its blocks.

    Args:
        sources: The sources, with their shares.
        encoding: How documents become blocks, and which are held out.
        window: Number of blocks of a window. It is rounded down to whole batches, but is at least one batch.
        lane: The part of the stream that this process reads.
        batch_size: Number of blocks of a batch.
        seed: Decides all orders.
        state: The state that came with the batch to resume after; `None` begins.
    """

    def __init__(
        self,
        sources: Sequence[StreamSource],
        encoding: BlockEncoding,
        *,
        window: int,
        lane: Lane,
        batch_size: int,
        seed: int,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._shares = [source.share for source in sources]
        # A window is divided into whole batches, so that none is short. It holds at least one.
        self._window_size = max(window // batch_size, 1) * batch_size
        self._batch_size = batch_size
        self._lane = lane
        self._seed = seed

        # The beginning of a stream, in the form of the states that `_read_window` gives.
        if state is None:
            state = {"window": 0, "sources": [None] * len(sources), "taken": 0, "drawn": [0] * len(sources)}
        self._window_number: int = state["window"]
        # The number of batches of the current window that a run which resumes has taken.
        self._taken_batches: int = state["taken"]
        # The number of blocks of each source that were drawn, in all windows.
        self._drawn_by_source: list[int] = list(state["drawn"])
        self._blocks_by_source = []
        for index, (source, source_state) in enumerate(zip(sources, state["sources"], strict=True)):
            self._blocks_by_source.append(SourceBlocks(source, index, encoding, lane, seed, source_state))

    def __iter__(self) -> Iterator[tuple[list[Block], dict[str, Any]]]:
        """Iterate without end over batches, each with the state to resume after it."""
        try:
            while True:
                yield from self._read_window()
                self._window_number += 1
                self._taken_batches = 0
        finally:
            for blocks in self._blocks_by_source:
                blocks.close()

    def _read_window(self) -> Iterator[tuple[list[Block], dict[str, Any]]]:
        """Iterate over the batches of the current window that were not given, each with the state behind it."""
        # The position in front of the window, from which a run that resumes fills the window again.
        window_state = {
            "window": self._window_number,
            "sources": [blocks.state() for blocks in self._blocks_by_source],
        }
        generator = np.random.default_rng([self._seed, self._lane.index, self._window_number])
        window = self._fill_window(generator)
        report = self._report().to_dict()

        lengths = np.array([len(block.ids) for block in window])
        order = generator.permutation(len(window))
        batches = group_by_length(order, lengths, self._batch_size, generator)
        remaining_batches = batches[self._taken_batches :]
        for number, rows in enumerate(remaining_batches, start=self._taken_batches + 1):
            batch = [window[row] for row in rows]
            for block in batch:
                self._drawn_by_source[block.source] += 1
            state = {**window_state, "taken": number, "drawn": list(self._drawn_by_source), "report": report}
            yield batch, state

    def _fill_window(self, generator: np.random.Generator) -> list[Block]:
        """Return the blocks of a window, from each source by its share."""
        counts = draw_counts(self._window_size, self._shares, generator.random())
        window: list[Block] = []
        for blocks, count in zip(self._blocks_by_source, counts, strict=True):
            window += islice(blocks, count)
        return window

    def _report(self) -> SourceReport:
        """Return the report of all sources so far."""
        report = SourceReport()
        for blocks in self._blocks_by_source:
            report.merge(blocks.report)
        return report
