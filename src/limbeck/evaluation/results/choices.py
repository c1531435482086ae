"""Choices: the grid point whose scores stand for a model on a task.

A *grid point* is a combination of settings, such as a learning rate with a number of epochs; it has a *run* (a cell)
for each seed. The point is chosen by its runs' scores on the task's *select split*, usually the development rows.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from limbeck.core.studies import FINISHED, EvaluationCell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.kinds.task import Task

Cells: TypeAlias = Mapping[str, EvaluationCell]
"""The latest row of every planned cell, by identity."""


@dataclass(frozen=True)
class Choice:
    """The grid point that stands for a model on a task.

    Attributes:
        cells: The finished runs of the point, in the order of their seeds; at least one.
        best: The run with the highest score on the select split.
        wanted: Number of runs that the point should have.
        points: Number of grid points with a finished run, among which it was chosen.
    """

    cells: Sequence[EvaluationCell]
    best: EvaluationCell
    wanted: int
    points: int


Choices: TypeAlias = Mapping[tuple[str, str], Choice]
"""Name of a model and name of a task, as the user gave them, to the grid point that stands for it."""


def choose_all(cells: Cells, tasks: Sequence[PlannedTask], models: Sequence[PlannedModel]) -> Choices:
    """Choose a grid point for every model on every task that it has a finished run of.

    Args:
        cells: The latest row of every planned cell, by identity.
        tasks: The tasks, in the order of the columns.
        models: The models, in the order of the rows.
    """
    choices: dict[tuple[str, str], Choice] = {}
    for task in tasks:
        for model in models:
            rows = [cells[planned.id] for planned in task.cells_of(model.name) if planned.id in cells]
            finished = [row for row in rows if row.status == FINISHED]
            if finished:
                choices[model.name, task.name] = choose(finished, task.task, task.settings, task.runs)
    return choices


def choose(cells: Sequence[EvaluationCell], task: Task, settings: FineTuning, runs: int) -> Choice:
    """Choose the grid point whose runs have the highest mean on the select split, or the single best run.

    Only the points with the most finished runs are compared. Of equal points the first in the grid's order is chosen.

    Args:
        cells: Finished cells of one model on the task, in the order of the plan; at least one.
        task: The task.
        settings: The task's settings: `pick` is `"best"` for the single best run, and `metric` decides.
        runs: Number of runs that each point should have.
    """
    metric = settings.metric_of(task)
    points = points_of(cells)
    if settings.pick == "best":
        best = best_run(cells, metric)
        return Choice([best], best=best, wanted=1, points=len(points))

    most_runs = max(len(point) for point in points)
    whole_points = [point for point in points if len(point) == most_runs]
    chosen_point = max(whole_points, key=lambda point: _mean_score(point, metric))
    by_seed = sorted(chosen_point, key=lambda cell: cell.seed)
    return Choice(by_seed, best=best_run(by_seed, metric), wanted=runs, points=len(points))


def _mean_score(cells: Sequence[EvaluationCell], metric: str) -> float:
    """Return the mean score of the runs of a grid point on the select split."""
    return statistics.fmean(select_score(cell, metric) for cell in cells)


def points_of(cells: Iterable[EvaluationCell]) -> list[list[EvaluationCell]]:
    """Return the cells of each grid point."""
    cells_of_point: dict[str, list[EvaluationCell]] = {}
    for cell in cells:
        # Settings have values of several types; as text they are a key.
        key = json.dumps(cell.settings, sort_keys=True, default=repr)
        cells_of_point.setdefault(key, []).append(cell)
    return list(cells_of_point.values())


def best_run(cells: Sequence[EvaluationCell], metric: str) -> EvaluationCell:
    """Return the cell with the highest score on the select split; of equals, the first."""
    return max(cells, key=lambda cell: select_score(cell, metric))


def has_metrics(cell: EvaluationCell, metrics: Iterable[str]) -> bool:
    """Whether each split that a cell scored has a score by all of a task's metrics."""
    wanted = set(metrics)
    return all(wanted <= scores.keys() for scores in cell.scores.values())


def select_score(cell: EvaluationCell, metric: str) -> float:
    """Return the score by which a cell is chosen: the metric on the select split.

    The first split stands in for an unknown select split. Without any scores it is 0.
    """
    if not cell.scores:
        return 0.0
    scores = cell.scores.get(cell.select or "")
    if not scores:
        first_split = next(iter(cell.scores))
        scores = cell.scores[first_split]
    value = scores.get(metric)
    # A score that is missing or None, which is not known, counts as the lowest score that there is.
    return -1.0 if value is None else value
