"""`CorpusSettings`: everything that decides what a corpus contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.corpus.mixing import Mix
from limbeck.corpus.units import UNITS
from limbeck.errors import CorpusError, suggestion

HOW_IT_IS_READ = ("streaming", "shuffle_buffer", "mix")
"""Settings that decide which rows are read when, and nothing of what a built corpus contains."""


@dataclass(frozen=True)
class CorpusSettings:
    """What to read and how to cut it into token blocks.

    Args:
        sources: Files, folders, globs, Hub data sets (`hub:owner/name`) or `installed-docs`; a lone string is
            one source.
        unit: What a block never crosses: `"document"`, `"paragraph"` or `"sentence"`.
        length: Most tokens in a block, special tokens included.
        join: Fill every block exactly, joining units with the tokenizer's separator.
        held_out: Share of the documents kept from training. It is chosen by a hash of each text, so it is the
            same whatever the unit, length or tokenizer.
        held_out_documents: Most documents to hold out, whatever the share.
        text_column: Column of the text in `.jsonl`, `.parquet` and Hub data sets.
        max_documents: Read no more documents than this, in the order of the sources.
        minimum_tokens: Blocks with fewer tokens than this, special tokens not counted, are dropped.
        streaming: Tokenise while training, keeping nothing on disk, instead of building a corpus.
        shuffle_buffer: Streaming: blocks that are shuffled together, in every process that reads.
        mix: The shares of the sources; without it they are read as they are, or streamed by their sizes.

    Raises:
        CorpusError: if a value cannot be meant.
    """

    sources: Sequence[str]
    unit: str = "document"
    length: int = 128
    join: bool = False
    held_out: float = 0.01
    held_out_documents: int = 5000
    text_column: str = "text"
    max_documents: int | None = None
    minimum_tokens: int = 4
    streaming: bool = False
    shuffle_buffer: int = 10_000
    mix: Mix | None = None

    def __post_init__(self) -> None:
        given = (self.sources,) if isinstance(self.sources, str) else self.sources
        object.__setattr__(self, "sources", tuple(map(str, given)))
        if not self.sources:
            raise CorpusError("The corpus has no source: give at least one file, folder or data set.")
        if self.unit not in UNITS:
            raise CorpusError(f"Unknown corpus unit '{self.unit}'.{suggestion(self.unit, UNITS)}")
        if self.length < 1:
            raise CorpusError(f"length is {self.length}: a block needs at least one token.")
        if not 0 <= self.held_out < 1:
            raise CorpusError(f"held_out is {self.held_out}: give a share from 0 up to, not including, 1.")
        if self.held_out_documents < 0:
            raise CorpusError(f"held_out_documents is {self.held_out_documents}: give 0 or more.")
        if self.max_documents is not None and self.max_documents < 1:
            raise CorpusError(f"max_documents is {self.max_documents}: give 1 or more, or leave it out.")
        if self.minimum_tokens < 1:
            raise CorpusError(f"minimum_tokens is {self.minimum_tokens}: give 1 or more.")
        if self.shuffle_buffer < 1:
            raise CorpusError(f"shuffle_buffer is {self.shuffle_buffer}: give 1 or more.")
        if self.streaming and self.max_documents is not None:
            raise CorpusError("max_documents is for a corpus that is built; a stream is as long as its training.")
        weights = self.mix.weights if self.mix is not None else None
        if weights is not None and len(weights) != len(self.sources):
            raise CorpusError(f"The mix has {len(weights)} weights for {len(self.sources)} sources: give one each.")
