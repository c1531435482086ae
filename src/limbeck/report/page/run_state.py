"""How a run that is not finished stands, as `limbeck status` tells it."""

from __future__ import annotations

from limbeck.report.page.content import Facts
from limbeck.report.search_grid import duration
from limbeck.training.run_status import RunStatus


def run_state(status: RunStatus) -> Facts:
    """Say where a run is, or was at last, and when it last gave a sign of life.

    Args:
        status: Of the run, as it was read for the page.
    """
    step = f"{status.step:,} of {status.steps:,}" if status.step is not None and status.steps is not None else ""
    pairs = (
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
    return Facts(tuple((name, value) for name, value in pairs if value))


def last_sign(seconds: float | None) -> str:
    """Say how long before the page was made there was a sign of life; nothing where none is known."""
    return "" if seconds is None else f"{duration(seconds)} before this page was made"
