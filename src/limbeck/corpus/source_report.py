"""`SourceReport`: what was wrong with the text, counted by kind, with a few places to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES_PER_KIND = 5
_LONGEST_PLACE = 300


@dataclass
class SourceReport:
    """Counts of everything that reading passed over or repaired.

    Bad text never stops a build and never disappears silently: it ends up here, and here in the manifest.

    Args:
        counts: Number of cases of each kind, for example `{"invalid JSON": 3}`.
        examples: The first few places of each kind, for example `{"invalid JSON": ["a.jsonl:12"]}`.
        muted: Whether cases are left out for now, because what is read has been read before.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    muted: bool = False

    def note(self, kind: str, where: str, count: int = 1) -> None:
        """Count `count` cases of `kind`, and keep `where` as an example if there are few yet."""
        if count <= 0 or self.muted:
            return
        self.counts[kind] = self.counts.get(kind, 0) + count
        places = self.examples.setdefault(kind, [])
        if len(places) < EXAMPLES_PER_KIND:
            places.append(one_line(where))

    def merge(self, other: SourceReport) -> None:
        """Add the cases of `other` to this report."""
        for kind, count in other.counts.items():
            room = EXAMPLES_PER_KIND - len(self.examples.get(kind, []))
            self.counts[kind] = self.counts.get(kind, 0) + count
            self.examples.setdefault(kind, []).extend(other.examples.get(kind, [])[: max(room, 0)])

    def lines(self) -> list[str]:
        """Return one readable line per kind, the most frequent first; empty when all was well."""
        order = sorted(self.counts, key=lambda kind: (-self.counts[kind], kind))
        return [f"{self.counts[kind]:,} x {kind} (such as {self._places(kind)})" for kind in order]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"counts": dict(self.counts), "examples": {k: list(v) for k, v in self.examples.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SourceReport:
        """Read back what `to_dict` wrote."""
        return cls(dict(values["counts"]), {k: list(v) for k, v in values["examples"].items()})

    def _places(self, kind: str) -> str:
        places: Iterable[str] = self.examples.get(kind, [])[:2]
        return ", ".join(places)


def one_line(text: object) -> str:
    """Return a name from outside as it may stand in a message: on one line, printable, of bounded length."""
    # File names may hold bytes that no terminal can print, newlines, and codes that change what it shows.
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text)[: 2 * _LONGEST_PLACE])
    return plain if len(plain) <= _LONGEST_PLACE else f"{plain[: _LONGEST_PLACE // 2]}…{plain[-_LONGEST_PLACE // 2 :]}"
