"""The report of everything that reading skipped or repaired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from limbeck.corpus.messages import safe_name

EXAMPLES_PER_KIND = 5


@dataclass
class SourceReport:
    """Counts of everything that reading skipped or repaired.

    Bad text never stops a build and never disappears silently: it ends up here, and here in the manifest.

    Args:
        counts: Number of cases of each kind, for example `{"invalid JSON": 3}`.
        examples: The first few places of each kind, for example `{"invalid JSON": ["a.jsonl:12"]}`.
        muted: Whether cases are left out for now, because the same text has been read before.
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
            places.append(safe_name(where))

    def merge(self, other: SourceReport) -> None:
        """Add the cases of `other` to this report."""
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
            places = self.examples.setdefault(kind, [])
            room = EXAMPLES_PER_KIND - len(places)
            places += other.examples.get(kind, [])[: max(room, 0)]

    def lines(self) -> list[str]:
        """Return one readable line per kind, the most frequent first; empty when all was well."""
        lines: list[str] = []
        for kind in sorted(self.counts, key=lambda kind: (-self.counts[kind], kind)):
            examples = ", ".join(self.examples.get(kind, ())[:2])
            lines.append(f"{self.counts[kind]:,} x {kind} (such as {examples})")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"counts": dict(self.counts), "examples": _copied(self.examples)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SourceReport:
        """Return the report that `to_dict` wrote; empty for an empty mapping."""
        return cls(dict(values.get("counts", {})), _copied(values.get("examples", {})))


def _copied(examples: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {kind: list(places) for kind, places in examples.items()}
