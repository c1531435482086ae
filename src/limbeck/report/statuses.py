"""Statuses of unfinished runs, as facts of one run and as a table of several."""

from collections.abc import Sequence

from limbeck.core.blocks import NOTHING, AnyCell, Facts, Table, duration
from limbeck.core.run_status import RunStatus

LAST_UPDATE = "Last update"
_COLUMNS = ("Status", "Stage", "Step", "Loss", "Tokens/s", LAST_UPDATE)
"""The facts of a run that the table of several runs has; the page of a single run has more."""


def run_status(status: RunStatus) -> Facts:
    """Return the status of a run as facts, such as its stage, its step and the time of its last update."""
    return Facts(tuple(_known_facts(status).items()))


def run_statuses(statuses: Sequence[RunStatus]) -> Table:
    """Return the statuses of several runs, a row each."""
    rows: list[tuple[AnyCell, ...]] = []
    for status in statuses:
        facts = _known_facts(status)
        cells = [facts.get(column, NOTHING) for column in _COLUMNS]
        rows.append((status.name, *cells))
    table = Table("Runs that are not finished", ("", *_COLUMNS), tuple(rows))
    return table.with_words("Status", "Stage", LAST_UPDATE)


def _known_facts(status: RunStatus) -> dict[str, str]:
    """Return the facts of a run that are known, by their names."""
    facts = {"Status": status.shown}
    if status.place:
        facts["Stage"] = status.place
    if status.step is not None and status.steps is not None:
        facts["Step"] = f"{status.step:,} of {status.steps:,}"
    if status.loss is not None:
        facts["Loss"] = f"{status.loss:.5g}"
    if status.tokens_per_second is not None:
        facts["Tokens/s"] = f"{status.tokens_per_second:,.0f}"
    if status.seconds_left is not None:
        facts["Time left in this stage"] = duration(status.seconds_left)
    if status.seconds_since is not None:
        facts[LAST_UPDATE] = last_update(status.seconds_since)
    if status.checkpoint is not None:
        facts["Last checkpoint"] = f"step {status.checkpoint:,}"
    if status.process is not None:
        facts["Process"] = status.process
    return facts


def last_update(seconds: float) -> str:
    """Return the time of an update, given by the seconds that have passed since."""
    return f"{duration(seconds)} before this page was made"
