"""The content of an evaluation's tables: chosen grid points, means, averages, retention and published rows."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from limbeck.evaluation.cell import seeds
from limbeck.evaluation.grid_plan import PlannedModel, PlannedTask
from limbeck.evaluation.protocols import Column, FineTuning, Protocol, task_columns
from limbeck.evaluation.published import PAPERS, PublishedRow, matching_rows
from limbeck.evaluation.tasks import Task

Row: TypeAlias = dict[str, Any]
FINISHED, FAILED = "finished", "failed"
Summary = dict[str, Any]
_COLA = "cola"
COMPUTED_NOTE = "† is computed from the published figures, over the columns of the measured average; not printed."


@dataclass(frozen=True)
class Runs:
    """A figure over runs that differ in their seed.

    Attributes:
        values: Of each run, in percent.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Their sample deviation (n - 1); None of a single run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def in_percent(values: Sequence[float]) -> Runs:
    """Return runs of values between -1 and 1."""
    return Runs(tuple(100 * value for value in values))


def average(parts: Sequence[Runs]) -> Runs:
    """Return the average over tasks: run by run where all have the same number of runs, else of their means.

    Args:
        parts: At least one.
    """
    if len({len(part.values) for part in parts}) == 1:
        return Runs(tuple(statistics.fmean(run) for run in zip(*(part.values for part in parts), strict=True)))
    return Runs((statistics.fmean(part.mean for part in parts),))


_SHOWN_SUBJECTS = 3
_NUMBER = re.compile(r"\d[\d,.]*")


def gather_notes(notes: Iterable[str]) -> list[str]:
    """Gather notes that say the same of several splits: the first whole, then the subjects of the others.

    Args:
        notes: `subject: note` each. Two are of a kind if their notes differ in its numbers
            only, and in what follows a further colon or stands in brackets (names and examples).

    Returns:
        A line a kind, in the order of their first notes.
    """
    kinds: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        kinds.setdefault(_kind(note), []).append(note)
    return [first + _likewise(others) for first, *others in kinds.values()]


def _kind(note: str) -> str:
    said = note.partition(": ")[2] or note
    return _NUMBER.sub("#", re.split(r": | \(", said, maxsplit=1)[0])


def _likewise(notes: list[str]) -> str:
    if not notes:
        return ""
    subjects = list(dict.fromkeys(note.partition(": ")[0] for note in notes))
    shown = ", ".join(subjects[:_SHOWN_SUBJECTS])
    left = len(subjects) - _SHOWN_SUBJECTS
    return f"; likewise {shown}" + (f" and {left} more" if left > 0 else "")


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


def choose(rows: Sequence[Row], task: Task, settings: FineTuning, runs: int) -> Choice:
    """Choose the grid point whose runs have the highest mean on the select split, or the one best run.

    Points that lack runs are passed over while another has all of its runs. Of equals, the first in the grid's order.

    Args:
        rows: Finished cells of one model on the task, in the order of the plan; at least one.
        task: The task.
        settings: Whether the mean over seeds decides, and which metric.
        runs: How many each point should have.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr(sorted(row["settings"].items())), []).append(row)
    most = max(map(len, groups.values()))
    whole = [group for group in groups.values() if len(group) == most]
    metric = settings.metric or task.metrics[0]
    if settings.pick == "best":
        best = max(rows, key=lambda row: select_score(row, metric))
        return Choice(best["settings"], [best], 1, len(groups))
    group = max(whole, key=lambda group: statistics.fmean(select_score(row, metric) for row in group))
    return Choice(group[0]["settings"], sorted(group, key=lambda row: row["seed"]), runs, len(groups))


Choices = Mapping[tuple[str, str], Choice]
"""Name of a model and name of a task, as the user gave them, to the grid point that stands for it."""


def choose_all(
    rows: Mapping[str, Row], tasks: Sequence[PlannedTask], models: Sequence[PlannedModel], *, seed_count: int | None
) -> Choices:
    """Choose a grid point for every model on every task that it has a finished run of.

    Args:
        rows: The latest row of every planned cell, by identity.
        tasks: In the order of the columns.
        models: In the order of the rows.
        seed_count: Runs of every point where the protocol does not decide.
    """
    found: dict[tuple[str, str], Choice] = {}
    for task in tasks:
        wanted = len(seeds(task.task, seed_count or task.settings.seeds))
        for model in models:
            own = [rows[cell.id] for cell in task.cells if cell.cell.model == model.name and cell.id in rows]
            done = [row for row in own if row["status"] == FINISHED]
            if done:
                found[model.name, task.name] = choose(done, task.task, task.settings, wanted)
    return found


def select_score(row: Row, metric: str) -> float:
    """Return what a cell is chosen by: the metric on its select split; 0 where it scored nothing."""
    scores: Mapping[str, Mapping[str, float]] = row["scores"]
    if not scores:
        return 0.0
    found = scores.get(row["select"]) or next(iter(scores.values()))
    value = found[metric] if metric in found else next(iter(found.values()))
    return -1.0 if value is None else value


def summarise(
    rows: Mapping[str, Row],
    tasks: Sequence[PlannedTask],
    models: Sequence[PlannedModel],
    protocol: Protocol,
    choices: Choices,
) -> Summary:
    """Make the content of the tables; the first model is the reference.

    Args:
        rows: The latest row of every planned cell, by identity.
        tasks: In the order of the columns.
        models: In the order of the rows.
        protocol: Decides metrics, averages and the papers beside.
        choices: The grid points whose scores stand for the models.

    Returns:
        `columns`, `models` (each with `columns`, `averages`, `retention`, `chosen`), `published`, `notes` and
        `notes_in_short`, a line a kind; scores in percent.
    """
    columns = [
        {**_described(column, task), "metric": task.metric} for task in tasks for column in task_columns(task.task)
    ]
    found = [_model(model, choices, tasks, columns, protocol) for model in models]
    for entry in found:
        entry["retention"] = _retention(entry, found[0]) if entry is not found[0] else {}
    shown = [(column["key"], column["metric"]) for column in columns]
    shapes = [(f"{model.shape.layers}x{model.shape.hidden}", model.shape.vocabulary) for model in models]
    # Tasks that are trained on the same rows say the same of them.
    notes, failures = list(dict.fromkeys(note for task in tasks for note in task.notes)), _missing(rows, tasks)
    beside = matching_rows(shapes, shown, protocol.papers or PAPERS)
    published = [_published(row, protocol, shown, found) for row in beside]
    notes += [COMPUTED_NOTE] if any(row["computed"] for row in published) else []
    return {
        "preset": protocol.name,
        "columns": columns,
        "models": found,
        "published": published,
        "notes": [*notes, *failures],
        "notes_in_short": [*gather_notes(notes), *failures],
    }


def _model(
    model: PlannedModel,
    choices: Choices,
    tasks: Sequence[PlannedTask],
    columns: Sequence[Mapping[str, Any]],
    protocol: Protocol,
) -> dict[str, Any]:
    scores: dict[str, Runs] = {}
    cells: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for task in tasks:
        choice = choices.get((model.name, task.name))
        if choice is None:
            continue
        chosen[task.task.name] = {
            "settings": dict(choice.settings), "runs": len(choice.rows), "wanted": choice.wanted,
            "points": choice.points, "seeds": [row["seed"] for row in choice.rows],
        }  # fmt: skip
        for column in task_columns(task.task):
            by_metric = _by_metric(choice, column)
            main = by_metric.get(task.metric) or next(iter(by_metric.values()))
            scores[column.key] = main
            cells[column.key] = {
                **_figures(main),
                "metrics": {metric: _figures(runs) for metric, runs in by_metric.items()},
            }
    trained = {column["key"] for column in columns if not column["detail"] and column["kind"] != "similarity"}
    averaged = [key for key in (protocol.average or [c["key"] for c in columns]) if key in trained and key in scores]
    full = len(protocol.average) if protocol.average else len(trained)
    return {
        "name": model.name,
        "shape": str(model.shape),
        "columns": cells,
        "averages": {
            "average": _average(averaged, scores, full),
            "without_cola": _average([key for key in averaged if key != _COLA], scores, full - 1)
            if _COLA in averaged
            else None,
        },
        "chosen": chosen,
    }


def _by_metric(choice: Choice, column: Column) -> dict[str, Runs]:
    """Every metric of a column over the runs; of several splits, their mean."""
    metrics = dict.fromkeys(metric for split in column.splits for metric in choice.rows[0]["scores"][split])
    return {
        metric: in_percent(
            [sum(row["scores"][split][metric] for split in column.splits) / len(column.splits) for row in choice.rows]
        )
        for metric in metrics
        if all(row["scores"][split].get(metric) is not None for row in choice.rows for split in column.splits)
        and not metric.endswith("_threshold")
    }


def _average(keys: Sequence[str], scores: Mapping[str, Runs], full: int) -> dict[str, Any] | None:
    if len(keys) < 2:
        return None
    return {**_figures(average([scores[key] for key in keys])), "of": list(keys), "complete": len(keys) == full}


def _figures(runs: Runs) -> dict[str, Any]:
    return {"mean": runs.mean, "deviation": runs.deviation, "runs": list(runs.values)}


def _retention(entry: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of the reference's score that is kept, in percent, where that is above 0 and ours not below."""
    pairs = {key: (cell, reference["columns"].get(key)) for key, cell in entry["columns"].items()}
    for key, value in entry["averages"].items():
        other = reference["averages"][key]
        # Averages over different tasks are not comparable.
        pairs[key] = (value, other if value and other and value["of"] == other["of"] else None)
    return {
        key: 100 * ours["mean"] / theirs["mean"]
        for key, (ours, theirs) in pairs.items()
        if ours is not None and theirs is not None and theirs["mean"] > 0 and ours["mean"] >= 0
    }


def _described(column: Column, task: PlannedTask) -> dict[str, Any]:
    return {
        "key": column.key,
        "title": column.title,
        "task": task.task.name,
        "kind": task.task.kind,
        "splits": list(column.splits),
        "detail": column.detail,
    }


def _published(
    row: PublishedRow, protocol: Protocol, shown: Sequence[tuple[str, str]], models: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a published row under the columns that are shown.

    Its averages are over the same columns as ours: as printed, else computed (and named in `computed`) where it has all
    of these columns.
    """
    columns = {key: row.scores[key, metric] for key, metric in shown if (key, metric) in row.scores}
    whole = bool(protocol.average) and set(protocol.average) <= {key for key, _ in shown}
    same = whole and {key for key, _ in row.averaged} == set(protocol.average)
    printed = {
        "average": row.average if same else None,
        "without_cola": row.average_without_cola if whole else None,
    }
    computed = {name: _computed(name, columns, models) for name, value in printed.items() if value is None}
    return {
        "paper": row.paper,
        "table": row.table,
        "model": row.model,
        "teacher": row.teacher,
        "shape": row.shape,
        "split": row.split,
        "columns": columns,
        **printed,
        **computed,
        "computed": [name for name, value in computed.items() if value is not None],
    }


def _computed(name: str, columns: Mapping[str, float], models: Sequence[Mapping[str, Any]]) -> float | None:
    """A published row's average over the columns of our models' average, where these have the same and it has all."""
    over = {tuple(model["averages"][name]["of"]) for model in models if model["averages"][name] is not None}
    keys = over.pop() if len(over) == 1 else ()
    if not keys or any(key not in columns for key in keys):
        return None
    return sum(columns[key] for key in keys) / len(keys)


def _missing(rows: Mapping[str, Row], tasks: Sequence[PlannedTask]) -> list[str]:
    cells = (cell for task in tasks for cell in task.cells)
    failed = ((cell.cell.describe(), rows[cell.id]["error"]) for cell in cells if _failed(rows.get(cell.id)))
    return failure_notes("cell", failed)


def _failed(row: Row | None) -> bool:
    return row is not None and row["status"] != FINISHED


def failure_notes(noun: str, failed: Iterable[tuple[str, str | None]]) -> list[str]:
    """Say what failed and why, a line for each reason.

    Args:
        noun: For one of them: "cell".
        failed: Their titles and reasons.
    """
    reasons: dict[str | None, list[str]] = {}
    for title, reason in failed:
        reasons.setdefault(reason, []).append(title)
    return [
        f"{len(titles)} {noun if len(titles) == 1 else f'{noun}s'} failed (first {titles[0]}): {reason}"
        for reason, titles in reasons.items()
    ]
