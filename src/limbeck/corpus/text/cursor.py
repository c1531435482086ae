"""`Cursor`: a position between two documents of a source, from which reading can resume.

A *shard* is a part of a source that is read from its beginning to its end, such as a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class FoundText(NamedTuple):
    """A text of a shard, or a line of a file.

    Args:
        text: The text as it was read; a line comes without its newline.
        position: Position behind it: bytes of the unpacked content, rows of a parquet file, or the state of a Hub data
            set.
        line: Number of its last line.
    """

    text: str
    position: Any
    line: int


def characters_of(text: FoundText) -> int:
    """Return the number of characters of a text, as `next_batch` counts them."""
    return len(text.text)


@dataclass
class Cursor:
    """A position between two documents of a source. Readers move it behind a document before they give that.

    Args:
        shard: Number of shards that were read to their end.
        position: Position in the next shard, as in `FoundText`. It is falsy at the beginning.
        line: Number of lines in front of the position, for messages.
        within: Number of documents that were given of the text at the position. It is above 0 within a text that is
            too long for one document.
    """

    shard: int = 0
    position: Any = 0
    line: int = 0
    within: int = 0

    @property
    def at_start(self) -> bool:
        """Whether nothing of the current shard has been read."""
        return not self.position and not self.within

    def move(self, shard: int, position: Any = 0, line: int = 0, within: int = 0) -> None:
        """Go to another position."""
        self.shard = shard
        self.position = position
        self.line = line
        self.within = within

    def to_json(self) -> list[Any]:
        """Return the position as plain JSON values, for a checkpoint."""
        return [self.shard, [self.position, self.line, self.within]]

    @classmethod
    def from_json(cls, values: list[Any]) -> Cursor:
        """Return the position that `to_json` wrote."""
        shard, (position, line, within) = values
        return cls(shard, position, line, within)
