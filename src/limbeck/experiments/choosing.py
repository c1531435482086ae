"""Choosing a grid point as the papers do, and the scores of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from limbeck.evaluation.protocols import FineTuning
from limbeck.evaluation.task import Task
from limbeck.experiments.results import Row


@dataclass(frozen=True)
class Choice:
    """The grid point that stands for a model on a task.

    Attributes:
        settings: Of the point.
        rows: Its finished runs, by seed.
        wanted: How many runs there should be.
        points: How many points have a finished run.
    """

    settings: Mapping[str, Any]
    rows: Sequence[Row]
    wanted: int
    points: int


def choose(rows: Sequence[Row], task: Task, settings: FineTuning, runs: int) -> Choice | None:
    """Choose the grid point whose runs have the highest mean on the select split, or the one best run.

    Points that lack runs are passed over while another has all of its runs. Of equals, the first in the grid's order.

    Args:
        rows: Finished cells of one model on the task, in the order of the plan.
        task: The task.
        settings: Whether the mean over seeds decides, and which metric.
        runs: How many each point should have.

    Returns:
        None without any row.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr(sorted(row["settings"].items())), []).append(row)
    if not groups:
        return None
    most = max(map(len, groups.values()))
    whole = [group for group in groups.values() if len(group) == most]
    metric = settings.metric or task.metrics[0]
    if settings.pick == "best":
        best = max(rows, key=lambda row: select_score(row, metric))
        return Choice(best["settings"], [best], 1, len(groups))
    group = max(whole, key=lambda group: statistics.fmean(select_score(row, metric) for row in group))
    return Choice(group[0]["settings"], sorted(group, key=lambda row: row["seed"]), runs, len(groups))


def select_score(row: Row, metric: str) -> float:
    """Return what a cell is chosen by: the metric on its select split; 0 where it scored nothing."""
    scores: Mapping[str, Mapping[str, float]] = row["scores"]
    if not scores:
        return 0.0
    found = scores.get(row["select"]) or next(iter(scores.values()))
    value = found[metric] if metric in found else next(iter(found.values()))
    return -1.0 if value is None else value
