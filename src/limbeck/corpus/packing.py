"""Units to token blocks: never longer than asked, no token lost, special tokens around each block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from limbeck.errors import CorpusError


@dataclass
class PackingCounts:
    """What packing made and what it left out.

    Args:
        blocks: Number of blocks.
        tokens: Number of tokens in them, special tokens included.
        dropped_blocks: Blocks left out because they were too short.
        dropped_tokens: Tokens in those, special tokens not included.
    """

    blocks: int = 0
    tokens: int = 0
    dropped_blocks: int = 0
    dropped_tokens: int = 0

    def __add__(self, other: PackingCounts) -> PackingCounts:
        mine, theirs = asdict(self), asdict(other)
        return PackingCounts(**{name: mine[name] + theirs[name] for name in mine})


class BlockPacker:
    """Cuts token sequences into blocks of at most `length` tokens.

    Without `join`, a block holds tokens of one unit: long units are cut into full blocks and a rest, short
    ones make short blocks, so that batches of equal lengths waste nothing. With it, the units form one stream
    with the separator between them, cut into exactly full blocks; what is left at the end is dropped and
    counted.

    Args:
        length: Most tokens in a block, special tokens included.
        prefix: Special tokens before a block.
        suffix: Special tokens after a block.
        minimum: Blocks with fewer tokens than this, special tokens not counted, are dropped.
        join: Whether to fill blocks across units.
        separator: Token between joined units.

    Raises:
        CorpusError: if no token fits between the special ones, or `join` is asked without a separator.
    """

    def __init__(
        self,
        length: int,
        prefix: Sequence[int],
        suffix: Sequence[int],
        *,
        minimum: int = 1,
        join: bool = False,
        separator: int | None = None,
    ) -> None:
        self._prefix = list(prefix)
        self._suffix = list(suffix)
        self._room = length - len(prefix) - len(suffix)
        if self._room < 1:
            raise CorpusError(
                f"length is {length}, but this tokenizer puts {len(prefix) + len(suffix)} special tokens in "
                f"a block: no text fits."
            )
        if join and separator is None:
            raise CorpusError("join needs a separator, and this tokenizer has neither a sep nor an eos token.")
        self._minimum = min(minimum, self._room)
        self._join = join
        self._separator = separator
        self._stream: list[int] = []
        self._joined = False  # Whether a unit has entered the stream, so that the next one needs a separator.
        self.counts = PackingCounts()

    def pack(self, units: Iterable[Sequence[int]]) -> Iterator[list[int]]:
        """Iterate over the blocks that are complete after these units.

        Args:
            units: Token ids of each unit, without special tokens.
        """
        for unit in units:
            if not self._join:
                for start in range(0, len(unit), self._room):
                    yield from self._block(unit[start : start + self._room])
            elif unit:
                if self._joined:
                    assert self._separator is not None
                    self._stream.append(self._separator)
                self._joined = True
                self._stream.extend(unit)
                yield from self._full_blocks()

    def finish(self) -> None:
        """Drop and count what has not filled a block; call it once, after the last unit."""
        if self._stream:
            self.counts.dropped_blocks += 1
            self.counts.dropped_tokens += len(self._stream)
            self._stream = []

    def state(self) -> list[Any]:
        """Return what has not filled a block, as plain JSON values."""
        return [self._joined, list(self._stream)]

    def restore(self, state: list[Any]) -> None:
        """Take up what `state` returned."""
        self._joined, self._stream = state[0], list(state[1])

    def _full_blocks(self) -> Iterator[list[int]]:
        full = len(self._stream) - len(self._stream) % self._room
        for start in range(0, full, self._room):
            yield from self._block(self._stream[start : start + self._room])
        del self._stream[:full]

    def _block(self, content: Sequence[int]) -> Iterator[list[int]]:
        if len(content) < self._minimum:
            self.counts.dropped_blocks += 1
            self.counts.dropped_tokens += len(content)
            return
        block = [*self._prefix, *content, *self._suffix]
        self.counts.blocks += 1
        self.counts.tokens += len(block)
        yield block
