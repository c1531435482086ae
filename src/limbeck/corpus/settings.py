"""`CorpusSettings`: everything that decides what a corpus contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.corpus.units import UNITS
from limbeck.errors import CorpusError, suggestion


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
