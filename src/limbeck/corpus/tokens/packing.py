"""`BlockPacker`: token sequences are cut into blocks, one by one, joined into a stream, or as pairs of segments.

A *unit* here is the token sequence of one piece of text, such as a sentence or a document.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limbeck.errors import CorpusError


@dataclass
class PackingCounts:
    """The numbers of blocks and tokens that were packed, and of those that were left out.

    Args:
        blocks: Number of blocks.
        tokens: Number of tokens in them, special tokens included.
        dropped_blocks: Blocks left out because they were too short.
        dropped_tokens: Tokens in those, special tokens not included.
        dropped_documents: Documents to train on of which no block was made. The packer does not know documents, so
            that the encoding counts them; where units are joined there are none.
    """

    blocks: int = 0
    tokens: int = 0
    dropped_blocks: int = 0
    dropped_tokens: int = 0
    dropped_documents: int = 0


@dataclass
class BlockPacker:
    """Cuts token sequences into blocks of at most `length` tokens.

    Without `join`, a block holds tokens of one unit. A long unit is cut into full blocks and a shorter last one, and a
    short unit makes a short block. With `join`, the units form one stream with the separator between them, which is cut
    into blocks of exactly `length` tokens. The rest at the end of the stream is dropped and counted.

    With `pairs`, the content of every block is cut once more, into the segments A and B with the separator between
    them: `[CLS] A [SEP] B [SEP]` for BERT. A ends at the end of a sentence inside the block, or at any token if no
    sentence ends there. Which of these places it is depends on the tokens of the block alone, through a hash, so that a
    block is the same in a built corpus, in a stream and in every epoch. Joined units then have no separator between
    them, so that a separator always ends a segment.

    Args:
        length: Most tokens in a block, special tokens included.
        prefix: Special tokens before a block.
        suffix: Special tokens after a block.
        minimum: Blocks with fewer tokens than this, special tokens not counted, are dropped; with pairs at least 2.
        join: Whether to fill blocks across units.
        separator: Token between joined units, and between the segments of a pair.
        pairs: Whether a block is a pair of segments.
        prompt: Tokens that every unit begins with. If a unit is cut, they are repeated at the beginning of each further
            block.

    Attributes:
        counts: The blocks and tokens so far.

    Raises:
        CorpusError: if no token of each segment fits between the special ones, or a separator is needed and missing.

    Source:
        BERT (arXiv 1810.04805, sections 3 and 3.1) for the form of a pair, and that A and B are spans of text, mostly
        longer than a sentence. There B follows A in half of the pairs and is a random span in the others, for the
        prediction of the next sentence; without that prediction B always follows A.
    """

    length: int
    prefix: Sequence[int]
    suffix: Sequence[int]
    _: KW_ONLY
    minimum: int = 1
    join: bool = False
    separator: int | None = None
    pairs: bool = False
    prompt: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Check that a block has room for text, and work out the room."""
        special_tokens = len(self.prefix) + len(self.suffix)
        fewest_tokens = 1
        if self.pairs:
            special_tokens += 1  # The separator between the segments.
            fewest_tokens = 2  # One of each segment.
        # The most tokens of a block between the special ones: the prompt, if there is one, and text.
        self._room = self.length - special_tokens
        room_for_text = self._room - len(self.prompt)
        if room_for_text < fewest_tokens:
            prompt = f" and the prompt {len(self.prompt)}" if self.prompt else ""
            content = "pair" if self.pairs else "text"
            raise CorpusError(
                f"length is {self.length}, but this tokenizer puts {special_tokens} special tokens in a "
                f"block{prompt}, so that no {content} fits: give a larger 'length'."
            )
        if (self.join or self.pairs) and self.separator is None:
            option = "pairs" if self.pairs else "join"
            raise CorpusError(
                f"'{option}' needs a token that separates texts, but this tokenizer has neither a sep_token nor an "
                f"eos_token: leave '{option}' out, or set one of the two."
            )
        # A minimum that no block could reach would drop all of them.
        reachable_minimum = min(self.minimum, room_for_text)
        self.minimum = max(reachable_minimum, fewest_tokens)
        self._prefix_ids = np.array(self.prefix, np.int32)
        self._prompt_ids = np.array(self.prompt, np.int32)
        self._suffix_ids = np.array(self.suffix, np.int32)
        self._stream = np.zeros(0, np.int32)
        self._has_joined = False  # Whether a unit has entered the stream, so that the next one needs a separator.
        self.counts = PackingCounts()

    def pack(self, units: Iterable[Sequence[int] | NDArray[np.int32]]) -> Iterator[NDArray[np.int32]]:
        """Iterate over the blocks of these units; with `join` the tokens behind the last full block wait for others.

        Args:
            units: Token ids of each unit, without special tokens. Each begins with the prompt, if there is one. For
                pairs the first token of each sentence is marked by the bitwise complement of its id, see
                `TokenEncoder.encode_sentences`. The marks are kept as the unit is cut, and `_pair` reads them.
        """
        arrays = [np.asarray(unit, np.int32) for unit in units]
        arrays_with_tokens = [array for array in arrays if len(array)]
        if self.join:
            yield from self._pack_stream(arrays_with_tokens)
            return
        for unit in arrays_with_tokens:
            yield from self.blocks_of_unit(unit)

    def blocks_of_unit(self, unit: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        """Iterate over the blocks of one unit, which is not joined with others; see `pack`."""
        # The first block of a unit is its beginning, which has the prompt.
        yield from self._block(self.beginning(unit))
        if self.holds(unit):
            return
        # In front of each further one the prompt is put here, so that less room is left for the text.
        room_for_text = self._room - len(self._prompt_ids)
        _, *further_starts = self.begins(len(unit))
        for start in further_starts:
            text = unit[start : start + room_for_text]
            yield from self._block(np.concatenate([self._prompt_ids, text]))

    def begins(self, tokens: int) -> list[int]:
        """Return the places in a unit, which is not joined with others, at which its blocks begin.

        Args:
            tokens: Number of its tokens, the prompt included.
        """
        room_for_text = self._room - len(self._prompt_ids)
        return [0, *range(self._room, tokens, room_for_text)]

    def holds(self, unit: Sequence[int] | NDArray[np.int32]) -> bool:
        """Whether a unit, its prompt included, fits into one block."""
        return len(unit) <= self._room

    def beginning(self, unit: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return as much of a unit, its prompt included, as fits into one block."""
        return unit[: self._room]

    def _pack_stream(self, units: Iterable[NDArray[np.int32]]) -> Iterator[NDArray[np.int32]]:
        """Put units at the end of the stream, and iterate over its full blocks; the rest waits for further units."""
        parts = [self._stream]
        for unit in units:
            # A separator stands between two units, also between the last of an earlier call and the first of this one.
            # In pairs it only ever stands between the segments.
            needs_separator = self._has_joined and not self.pairs
            if needs_separator:
                parts.append(np.array([self.separator], np.int32))
            self._has_joined = True
            parts.append(unit)
        stream = np.concatenate(parts)
        end_of_full_blocks = len(stream) - len(stream) % self._room
        # A copy, so that the blocks before it can be freed.
        self._stream = stream[end_of_full_blocks:].copy()
        for start in range(0, end_of_full_blocks, self._room):
            yield from self._block(stream[start : start + self._room])

    def finish(self) -> None:
        """Drop and count the tokens that have not filled a block; call it once, after the last unit."""
        if len(self._stream):
            self.counts.dropped_blocks += 1
            self.counts.dropped_tokens += len(self._stream)
            self._stream = self._stream[:0]

    def state(self) -> list[Any]:
        """Return the tokens that have not filled a block, as plain JSON values."""
        return [self._has_joined, self._stream.tolist()]

    def restore(self, state: list[Any]) -> None:
        """Restore the tokens that `state` returned."""
        has_joined, stream = state
        self._has_joined = has_joined
        self._stream = np.array(stream, np.int32)

    def _block(self, content: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
        """Yield the block with this content, or nothing if it is too short, and count it.

        Args:
            content: The tokens between the special ones, a prompt included; for pairs with marked sentences.
        """
        if len(content) - len(self.prompt) < self.minimum:
            self.counts.dropped_blocks += 1
            self.counts.dropped_tokens += len(content)
            return
        if self.pairs:
            content = self._pair(content)
        block = np.concatenate([self._prefix_ids, content, self._suffix_ids])
        self.counts.blocks += 1
        self.counts.tokens += len(block)
        yield block

    def _pair(self, content: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the content of a pair: the ids without marks, with the separator at the end of segment A."""
        # The first token of a sentence is marked: its id is stored as the bitwise complement, which is below 0.
        begins_sentence = content < 0
        ids = np.where(begins_sentence, ~content, content)

        # Where A may end: before a sentence inside the block, or at any token where none begins there.
        places = np.flatnonzero(begins_sentence[1:]) + 1
        if len(places) == 0:
            places = np.arange(1, len(ids))
        # A hash of the tokens chooses the place, so that the block is cut there wherever it is read.
        checksum = zlib.crc32(ids.astype(np.int64).tobytes())
        end_of_first = int(places[checksum % len(places)])
        assert self.separator is not None
        return np.insert(ids, end_of_first, self.separator)


def segments_of(block: Sequence[int] | NDArray[np.int32], separator: int) -> NDArray[np.int8]:
    """Return the segment of every token of a pair, `[tokens]`: 0 up to the first separator and at it, 1 behind it."""
    is_separator = np.asarray(block) == separator
    # The sum counts separators up to and including a token. If it is above the token's own flag, one stands before it.
    return (np.cumsum(is_separator) > is_separator).astype(np.int8)
