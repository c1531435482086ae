"""`Place`: where the reading of a shard goes on, as plain values that a checkpoint can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Place:
    """A position between two documents of a shard; readers move it before they give a document.

    Args:
        offset: What lies before: bytes of the unpacked content, rows, or the state of a Hub data set. Falsy at the
            beginning.
        line: Lines before it, for messages.
        within: Documents taken of the text that follows, which is longer than a document may be.
    """

    offset: Any = 0
    line: int = 0
    within: int = 0

    def to_json(self) -> list[Any]:
        """Return plain JSON values."""
        return [self.offset, self.line, self.within]

    @classmethod
    def from_json(cls, values: list[Any]) -> Place:
        """Read back what `to_json` wrote."""
        return cls(*values)

    @property
    def at_start(self) -> bool:
        """Whether nothing has been read."""
        return not self.offset and not self.within
