"""`Cursor`: where the reading of a source goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from limbeck.corpus.place import Place


@dataclass
class Cursor:
    """A position between two documents of a source; reading moves it.

    Args:
        shard: Shards that were read to their end.
        place: The position in the next one.
    """

    shard: int = 0
    place: Place = field(default_factory=Place)

    @property
    def at_start(self) -> bool:
        """Whether nothing has been read."""
        return self.shard == 0 and self.place.at_start

    def next_shard(self) -> None:
        """Go to the beginning of the next shard."""
        self.shard += 1
        self.place = Place()

    def to_json(self) -> list[Any]:
        """Return plain JSON values."""
        return [self.shard, self.place.to_json()]

    @classmethod
    def from_json(cls, values: list[Any]) -> Cursor:
        """Read back what `to_json` wrote."""
        return cls(values[0], Place.from_json(values[1]))
