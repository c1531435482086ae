"""How an inspection tells what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[float, str], None]
"""Is told which share of the whole is done, 0 to 1, and what is done now."""


def quietly(share: float, what: str) -> None:
    """Be told, and keep it."""


def part_of(report: Report, start: float, end: float) -> Report:
    """Return a report for a part of the whole, from `start` to `end`."""
    return lambda share, what: report(start + (end - start) * share, what)
