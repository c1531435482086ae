"""What an examination finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Status: TypeAlias = Literal["ok", "absent", "warning", "failed"]
"""`absent` is something optional that is not here, and nobody's fault."""

_BY_SEVERITY: tuple[Status, ...] = ("ok", "absent", "warning", "failed")


@dataclass(frozen=True)
class Finding:
    """One line of an examination.

    Args:
        name: What was looked at.
        status: How it is.
        text: What was found.
        way_out: What to do about it; None where there is nothing to do.
        facts: The same for programs; fit for JSON.
    """

    name: str
    status: Status
    text: str
    way_out: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def worst(findings: Iterable[Finding]) -> Status:
    """Return the most severe status; `"ok"` of nothing, and what is only absent is well too."""
    found = max((_BY_SEVERITY.index(finding.status) for finding in findings), default=0)
    return "ok" if _BY_SEVERITY[found] == "absent" else _BY_SEVERITY[found]


def gigabytes(count: int) -> str:
    """Return bytes as text, in units of 10^9."""
    return f"{count / 1e9:,.1f} GB"
