"""How a run that is not finished stands, as `limbeck status` tells it."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.report.page.content import NOTHING, Facts, Table
from limbeck.report.search_grid import duration
from limbeck.training.record import RunStatus


def run_state(status: RunStatus) -> Facts:
    """Say where a run is, or was at last, and when it last gave a sign of life.

    Args:
        status: Of the run, as it was read for the page.
    """
    return Facts(tuple((name, value) for name, value in _pairs(status) if value))


def run_states(states: Sequence[RunStatus]) -> Table:
    """Say of several runs how they stand, a row each."""
    columns = ("Status", "At", "Step", "Loss", "Tokens/s", "Last sign of life")
    rows = tuple(
        (status.name, *(found[name] or NOTHING for name in columns))
        for status in states
        for found in [dict(_pairs(status))]
    )
    return Table("Runs that are not finished", ("", *columns), rows, words=(1, 2, 6))


def _pairs(status: RunStatus) -> tuple[tuple[str, str], ...]:
    step = f"{status.step:,} of {status.steps:,}" if status.step is not None and status.steps is not None else ""
    return (
        ("Status", f"{status.status}, but silent" if status.silent else status.status),
        ("At", status.stage or status.activity or ""),
        ("Step", step),
        ("Loss", "" if status.loss is None else f"{status.loss:.5g}"),
        ("Tokens/s", "" if status.tokens_per_second is None else f"{status.tokens_per_second:,.0f}"),
        ("Left of the stage", "" if status.seconds_left is None else duration(status.seconds_left)),
        ("Last sign of life", last_sign(status.seconds_since)),
        ("Last checkpoint", "" if status.checkpoint is None else f"step {status.checkpoint:,}"),
        ("Process", "" if status.pid is None else f"{status.pid} on {status.host or 'an unknown host'}"),
    )


def last_sign(seconds: float | None) -> str:
    """Say how long before the page was made there was a sign of life; nothing where none is known."""
    return "" if seconds is None else f"{duration(seconds)} before this page was made"
