"""`Finding`, one line of an examination, and how severe several of them are together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Status: TypeAlias = Literal["ok", "absent", "warning", "failed"]
"""The statuses from the best to the worst. `absent` is for optional things that are not installed, or not there."""
_BY_SEVERITY: tuple[Status, ...] = get_args(Status)
"""The statuses in the order above, so that the index is the severity."""


@dataclass(frozen=True)
class Finding:
    """One line of an examination.

    Args:
        name: Name of the thing that was examined, such as `python` or `corpus cache`.
        status: Its status.
        text: The result in words.
        way_out: The user's way out of a problem; None where nothing needs to be done.
        facts: The result for programs, fit for JSON.
    """

    name: str
    status: Status
    text: str
    way_out: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def worst(findings: Iterable[Finding]) -> Status:
    """Return the most severe status; "ok" for no findings, and where the worst is "absent", which is no problem."""
    severity = max((_BY_SEVERITY.index(finding.status) for finding in findings), default=0)
    status = _BY_SEVERITY[severity]
    return "ok" if status == "absent" else status


def gigabytes(count: int) -> str:
    """Return bytes as text, in units of 10^9."""
    return f"{count / 1e9:,.1f} GB"
