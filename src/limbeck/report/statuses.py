"""Statuses of unfinished runs, as facts of one run and as a table of several."""

from collections.abc import Sequence

from limbeck.core.blocks import NOTHING, AnyCell, Facts, Table, duration
from limbeck.core.run_status import RunStatus

LAST_UPDATE = "Last update"
_COLUMNS = ("Status", "Stage", "Step", "Loss", "Tokens/s", LAST_UPDATE)


def run_status(status: RunStatus) -> Facts:
    """Return the status of a run: where it is, or was at last, and when it last gave an update."""
    return Facts(tuple(_facts(status).items()))


def run_statuses(statuses: Sequence[RunStatus]) -> Table:
    """Return the statuses of several runs, a row each."""
    rows: list[tuple[AnyCell, ...]] = []
    for status in statuses:
        facts = _facts(status)
        rows.append((status.name, *(facts.get(column, NOTHING) for column in _COLUMNS)))
    return Table("Runs that are not finished", ("", *_COLUMNS), tuple(rows), words=(1, 2, 6))


def _facts(status: RunStatus) -> dict[str, str]:
    """Return what is known of a run by its name."""
    facts = {"Status": status.shown, "Stage": status.stage or status.activity or ""}
    if status.step is not None and status.steps is not None:
        facts["Step"] = f"{status.step:,} of {status.steps:,}"
    if status.loss is not None:
        facts["Loss"] = f"{status.loss:.5g}"
    if status.tokens_per_second is not None:
        facts["Tokens/s"] = f"{status.tokens_per_second:,.0f}"
    if status.seconds_left is not None:
        facts["Time left in this stage"] = duration(status.seconds_left)
    facts[LAST_UPDATE] = last_update(status.seconds_since)
    if status.checkpoint is not None:
        facts["Last checkpoint"] = f"step {status.checkpoint:,}"
    if status.pid is not None:
        facts["Process"] = f"{status.pid} on {status.host or 'an unknown host'}"
    return {name: value for name, value in facts.items() if value}


def last_update(seconds: float | None) -> str:
    """Return how long before the page was made there was an update; empty where none is known."""
    return "" if seconds is None else f"{duration(seconds)} before this page was made"
