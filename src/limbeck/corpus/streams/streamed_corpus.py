"""`open_stream` and `StreamedCorpus`: text that is tokenised while it is trained on.

Only the beginning is stored: the held-out documents and a few blocks. Blocks come window by window; a state of a few
hundred bytes is enough to go on behind any batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core.cache import build_once
from limbeck.core.hashing import fingerprint
from limbeck.corpus.building.block_encoding import BlockEncoding, block_encoding, block_identity
from limbeck.corpus.building.build_text import BLOCK_FORMAT
from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.corpora import Corpus
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import Progress, waiting_notice
from limbeck.corpus.settings import CorpusSettings, SourceUse
from limbeck.corpus.sources.named_sources import open_source
from limbeck.corpus.sources.source_kinds import ShardedSource
from limbeck.corpus.stored.stored_documents import DOCUMENT_FORMAT
from limbeck.corpus.streams.source_blocks import Lane, StreamSource
from limbeck.corpus.streams.stream_batches import StreamBatches
from limbeck.corpus.streams.stream_beginning import store_beginning
from limbeck.errors import CorpusError

STREAM_FORMAT = 1
"""Raise it when the same sources would give other batches."""


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
        sources: Sequence[StreamSource],
        encoding: BlockEncoding,
        window: int,
        uses: Sequence[SourceUse] = (),
    ) -> None:
        super().__init__(path, titles=[source.name for source in sources], uses=uses)
        self.sources = sources
        self._encoding = encoding
        self._window = window

    def shares(self) -> list[float]:
        """Return the share of each source in what is trained on."""
        return [source.share for source in self.sources]

    def batches(
        self, lane: Lane, *, batch_size: int, seed: int, state: Mapping[str, Any] | None = None
    ) -> StreamBatches:
        """Return the batches of one of the processes that read side by side; see `StreamBatches`.

        Args:
            lane: The process, of all that read.
            batch_size: Blocks of a batch.
            seed: Decides the order.
            state: The state that came with the batch to go on behind; `None` begins.
        """
        return StreamBatches(
            self.sources,
            self._encoding,
            window=self._window,
            lane=lane,
            batch_size=batch_size,
            seed=seed,
            state=state,
        )


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
    sources: list[StreamSource] = []
    for title, place in zip(settings.titles, settings.places, strict=True):
        sources.append(StreamSource(title, _open_sharded(place, settings.text_column)))

    # The beginning is read once.
    formats = [STREAM_FORMAT, BLOCK_FORMAT, DOCUMENT_FORMAT]
    fingerprints = [source.source.fingerprint() for source in sources]
    name = fingerprint([formats, fingerprints, *block_identity(settings, encoding)])
    folder = cache_root(cache_dir) / "streams" / name
    waiting = waiting_notice(progress, "waiting for another process that looks into this stream")
    manifest = build_once(
        folder, lambda aside: store_beginning(settings, sources, encoding, aside, progress), waiting=waiting
    )

    return StreamedCorpus(
        folder,
        _with_shares(sources, settings),
        replace(encoding, held_below=int(manifest["held_below"])),
        settings.shuffle_buffer,
        settings.uses,
    )


def _open_sharded(place: str, text_column: str) -> ShardedSource:
    source = open_source(place, text_column)
    if not isinstance(source, ShardedSource):
        raise CorpusError(f"'{safe_name(place)}' is read as a whole, so it cannot be streamed: leave out streaming.")
    return source


def _with_shares(sources: Sequence[StreamSource], settings: CorpusSettings) -> list[StreamSource]:
    """Return the sources with their shares; a single one has all."""
    mixing = settings.mixing
    if len(sources) == 1 or mixing is None:
        return list(sources)
    # Asking for sizes reads a part of each source.
    sizes: list[int | None] = [None] * len(sources)
    if mixing.reads_sizes:
        sizes = [source.source.size() for source in sources]
    shares = mixing.shares(sizes)
    return [source._replace(share=share) for source, share in zip(sources, shares, strict=True)]
