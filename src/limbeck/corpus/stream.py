"""`StreamedCorpus`: text that is tokenised while it is trained on; only its beginning and what is held out is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limbeck.core.files import build_once, default_cache_dir, fingerprint
from limbeck.corpus.build import BLOCK_FORMAT, block_packing
from limbeck.corpus.corpus import Corpus
from limbeck.corpus.document_reading import Progress
from limbeck.corpus.document_store import DOCUMENT_FORMAT
from limbeck.corpus.encoder import TokenEncoder
from limbeck.corpus.installed_docs import InstalledDocs
from limbeck.corpus.mixing import Mix
from limbeck.corpus.settings import CorpusSettings
from limbeck.corpus.source_report import one_line
from limbeck.corpus.sources import ShardedSource, open_source
from limbeck.corpus.stream_beginning import Cutting, store_beginning
from limbeck.corpus.stream_blocks import BlockMaker, Lane
from limbeck.corpus.stream_windows import NamedSource, StreamBatches
from limbeck.errors import CorpusError

STREAM_FORMAT = 1
"""Raise it when the same sources would give other batches."""


class StreamedCorpus(Corpus):
    """An endless stream of token blocks.

    It is opened like a corpus whose text is the beginning of the stream: `train` are a few blocks of it, for whoever
    needs to see some beforehand, and `held_out` those that training never meets. What is trained on comes from
    `batches`.

    Args:
        path: The folder that `open_stream` made.
        sources: The sources, with their shares.
        maker: How text becomes blocks.
        window: Blocks that are shuffled together.
    """

    def __init__(self, path: Path, sources: Sequence[NamedSource], maker: BlockMaker, window: int) -> None:
        super().__init__(path)
        self.sources = list(sources)
        self._maker = maker
        self._window = window

    def batches(self, lane: Lane, *, batch_size: int, seed: int, state: dict[str, Any] | None = None) -> StreamBatches:
        """Return the batches of one of the processes that read side by side; see `StreamBatches`.

        Args:
            lane: Which process, of how many.
            batch_size: Blocks of a batch.
            seed: Decides the order.
            state: What came with the batch to go on behind; `None` begins.
        """
        return StreamBatches(
            self.sources, self._maker, lane, window=self._window, batch_size=batch_size, seed=seed, state=state
        )


def open_stream(
    settings: CorpusSettings,
    tokenizer: Any,
    *,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> StreamedCorpus:
    """Open sources as a stream: read their beginning, decide what is held out, and leave the rest where it is.

    A document is held out if its hash falls below a threshold, wherever in the stream it stands. The held-out figures
    are of those at the beginning of the sources. Documents that appear twice are read twice.

    Args:
        settings: What to read and how to cut it.
        tokenizer: A `transformers` tokenizer; it is not changed.
        cache_dir: Root of the cache; the default is `$LIMBECK_CACHE`, or `~/.cache/limbeck`.
        progress: Called with the name of the step, what is done, the total or `None`, and what is counted.

    Raises:
        CorpusError: if a source is missing, unreadable, empty, or of a kind that cannot be streamed, or the shares of
            several cannot be known.
    """
    cache = Path(cache_dir).expanduser() if cache_dir is not None else default_cache_dir()
    encoder = TokenEncoder(tokenizer)
    packing = block_packing(settings, encoder)
    sources = [_open(name, settings.text_column) for name in settings.sources]
    states = [source.fingerprint() for source in sources]
    split = {"unit": settings.unit, "held_out": settings.held_out, "most_held": settings.held_out_documents}
    formats = [STREAM_FORMAT, BLOCK_FORMAT, DOCUMENT_FORMAT]
    folder = cache / "streams" / fingerprint([formats, states, encoder.fingerprint(), packing, split])

    def build(aside: Path) -> dict[str, Any]:
        return store_beginning(settings, sources, Cutting(encoder, settings.unit, packing), aside, progress)

    manifest = build_once(folder, build)
    maker = BlockMaker(encoder, settings.unit, packing, int(manifest["held_below"]))
    return StreamedCorpus(folder, _with_shares(settings, sources), maker, settings.shuffle_buffer)


def _open(name: str, text_column: str) -> ShardedSource:
    source = open_source(name, text_column)
    if isinstance(source, InstalledDocs):
        raise CorpusError(f"'{one_line(name)}' is read as a whole, so it cannot be streamed: leave out streaming.")
    return source  # type: ignore[return-value]


def _with_shares(settings: CorpusSettings, sources: Sequence[ShardedSource]) -> list[NamedSource]:
    mix = settings.mix or Mix(exponent=1.0)
    if len(sources) == 1:
        shares = [1.0]
    else:
        shares = mix.shares([source.size() if mix.weights is None else None for source in sources])
    return [NamedSource(*values) for values in zip(settings.sources, sources, shares, strict=True)]
