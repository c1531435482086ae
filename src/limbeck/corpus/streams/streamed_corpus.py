"""`open_stream` and `StreamedCorpus`: text that is tokenised while it is trained on.

Only the beginning is stored: the held-out documents and a few blocks. Blocks to train on come in *windows*, which are
shuffled. A run can resume behind any batch by a state of a few hundred bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core.cache import build_once
from limbeck.corpus.building.block_encoding import BlockEncoding, block_encoding, block_identity
from limbeck.corpus.building.build_text import BLOCK_FORMAT
from limbeck.corpus.building.cache_root import cache_root
from limbeck.corpus.building.corpora import Corpus
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import Progress, waiting_notice
from limbeck.corpus.settings import CorpusSettings, SourceUse
from limbeck.corpus.sources.named_sources import open_source
from limbeck.corpus.sources.source_kinds import ShardedSource
from limbeck.corpus.stored.source_content import name_of_build
from limbeck.corpus.stored.stored_documents import DOCUMENT_FORMAT
from limbeck.corpus.streams.source_blocks import Lane, StreamSource
from limbeck.corpus.streams.stream_batches import StreamBatches
from limbeck.corpus.streams.stream_beginning import store_beginning
from limbeck.errors import CorpusError

STREAM_FORMAT = 1
"""Raise it when the same sources would give other batches."""


class StreamedCorpus(Corpus):
    """An endless stream of token blocks.

    As a `Corpus` it has the beginning of the stream: `train` has a few of its blocks, to look at, and `held_out` has
    blocks of documents that are never trained on. The blocks to train on come from `batches`.

    Args:
        path: The folder that `open_stream` made.
        sources: The sources, with their shares.
        encoding: How documents become blocks, and which are held out.
        window: Number of blocks that are shuffled together.
        uses: The role, prompt and units of each source; empty where no source has any.
        languages: The language of each source, see `Corpus`.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[StreamSource],
        encoding: BlockEncoding,
        window: int,
        uses: Sequence[SourceUse] = (),
        languages: Sequence[str] = (),
    ) -> None:
        super().__init__(path, titles=[source.name for source in sources], uses=uses, languages=languages)
        self.sources = sources
        self._encoding = encoding
        self._window = window

    def shares(self) -> list[float]:
        """Return the share of each source among the blocks that are trained on."""
        return [source.share for source in self.sources]

    def batches(
        self, lane: Lane, *, batch_size: int, seed: int, state: Mapping[str, Any] | None = None
    ) -> StreamBatches:
        """Return the batches of one of the processes that read the stream; see `StreamBatches`.

        Args:
            lane: The part of the stream that the process reads.
            batch_size: Number of blocks of a batch.
            seed: Decides the order.
            state: The state that came with the batch to resume after; `None` begins.
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
    """Open sources as a stream: read their beginning, choose held-out documents, and store nothing else.

    A document anywhere in the stream is held out if its hash is below a threshold. Held-out figures are computed from
    such documents at the beginning of the sources. Documents that appear twice are read twice.

    Args:
        settings: The sources, and how their text is cut into blocks.
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
        sources.append(StreamSource(title, _open_sharded(place, settings)))

    # The beginning is read once.
    formats = [STREAM_FORMAT, BLOCK_FORMAT, DOCUMENT_FORMAT]
    fingerprints = [source.source.fingerprint() for source in sources]
    identity = [formats, fingerprints, *block_identity(settings, encoding)]
    cache = cache_root(cache_dir)
    # A stream may be too long to be hashed, and its beginning is soon read again.
    name = name_of_build(cache, identity, [source.source for source in sources], is_cheap=False)
    folder = cache / "streams" / name
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
        settings.languages,
    )


def _open_sharded(place: str, settings: CorpusSettings) -> ShardedSource:
    source = open_source(place, settings.text_column, separator=settings.separator)
    if not isinstance(source, ShardedSource):
        raise CorpusError(
            f"'{safe_name(place)}' can only be read as a whole, so it cannot be streamed: leave out corpus.streaming."
        )
    return source


def _with_shares(sources: Sequence[StreamSource], settings: CorpusSettings) -> list[StreamSource]:
    """Return the sources with their shares; a single source has the share 1."""
    mixing = settings.mixing
    if len(sources) == 1 or mixing is None:
        return list(sources)
    # Sizes are asked for only where shares depend on them, since that reads a part of each source.
    sizes: list[int | None] = [None] * len(sources)
    if mixing.reads_sizes:
        sizes = [source.source.size() for source in sources]
    shares = mixing.shares(sizes)
    return [source._replace(share=share) for source, share in zip(sources, shares, strict=True)]
