"""`Cursor`: a position between two documents of a source, from which reading can go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class FoundText(NamedTuple):
    """A text of a shard, or a line of it.

    Args:
        text: As it stands there, a line without its newline.
        position: Bytes of the unpacked content up to its end, newline included; rows; or the state of a Hub data set.
        line: Lines up to there.
    """

    text: str
    position: Any
    line: int


@dataclass
class Cursor:
    """A position between two documents of a source; readers move it before they give a document.

    Args:
        shard: Shards that were read to their end.
        position: Position in the next one, as of `FoundText`. Falsy at the beginning.
        line: Lines before it, for messages.
        within: Documents taken of the text that follows, which is longer than a document may be.
    """

    shard: int = 0
    position: Any = 0
    line: int = 0
    within: int = 0

    @property
    def at_start(self) -> bool:
        """Whether nothing of the shard has been read."""
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
