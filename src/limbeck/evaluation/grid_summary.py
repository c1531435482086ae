"""The content of an evaluation's tables: chosen grid points, means, averages, retention and published rows."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from limbeck.core import records, studies
from limbeck.core.blocks import counted
from limbeck.core.kinds import kind_of
from limbeck.core.studies import FINISHED, Column
from limbeck.evaluation.planned_model import PlannedModel
from limbeck.evaluation.planning import PlannedTask
from limbeck.evaluation.protocols import Protocol
from limbeck.evaluation.published import PAPERS, PublishedRow, matching_rows
from limbeck.evaluation.settings import FineTuning
from limbeck.evaluation.tasks import PUBLISHED
from limbeck.kinds.answer_scores import THRESHOLDS
from limbeck.kinds.task import Task

_COLA = "cola"
COMPUTED_NOTE = "† is not printed in the paper: computed from its figures, over the columns of the measured average."

_TASK_NOTE = (
    "Published rows left out: {}, of students distilled on the tasks; they are shown only beside students trained on "
    "labelled rows."
)

_SHOWN_SUBJECTS = 3
_NUMBER = re.compile(r"\d[\d,.]*")
_NOT_FOUND = re.compile(r"(?<=^no ).+ files?(?= found$)")


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
    if PUBLISHED in said:
        return PUBLISHED
    return _NUMBER.sub("#", re.split(r": | \(", _NOT_FOUND.sub("", said), maxsplit=1)[0])


def _likewise(notes: list[str]) -> str:
    if not notes:
        return ""
    subjects = list(dict.fromkeys(note.partition(": ")[0] for note in notes))
    shown = ", ".join(subjects[:_SHOWN_SUBJECTS])
    left = len(subjects) - _SHOWN_SUBJECTS
    others = "also incomplete:" if PUBLISHED in notes[0] else "likewise"
    return f"; {others} {shown}" + (f" and {left} more" if left > 0 else "")


Cells: TypeAlias = Mapping[str, studies.EvaluationCell]
"""The latest row of every planned cell, by identity."""


@dataclass(frozen=True)
class Choice:
    """The grid point that stands for a model on a task.

    Attributes:
        cells: Its finished runs, by seed; at least one.
        best: That with the highest score on the select split.
        wanted: Number of runs there should be.
        points: Number of points with a finished run.
    """

    cells: Sequence[studies.EvaluationCell]
    best: studies.EvaluationCell
    wanted: int
    points: int


def choose(cells: Sequence[studies.EvaluationCell], task: Task, settings: FineTuning, runs: int) -> Choice:
    """Choose the grid point whose runs have the highest mean on the select split, or the one best run.

    Points that lack runs are skipped while another has all of its runs. Of equals, the first in the grid's order.

    Args:
        cells: Finished cells of one model on the task, in the order of the plan; at least one.
        task: The task.
        settings: Whether the mean over seeds decides, and which metric.
        runs: Number that each point should have.
    """
    points, metric = points_of(cells), settings.metric or task.metrics[0]
    if settings.pick == "best":
        best = best_run(cells, metric)
        return Choice([best], best, 1, len(points))
    selected = partial(select_score, metric=metric)
    most = max(map(len, points))
    whole = (point for point in points if len(point) == most)
    point = sorted(max(whole, key=lambda one: statistics.fmean(map(selected, one))), key=lambda cell: cell.seed)
    return Choice(point, best_run(point, metric), runs, len(points))


def points_of(cells: Iterable[studies.EvaluationCell]) -> list[list[studies.EvaluationCell]]:
    """Return the cells of each grid point."""
    points: dict[str, list[studies.EvaluationCell]] = {}
    for cell in cells:
        points.setdefault(repr(sorted(cell.settings.items())), []).append(cell)
    return list(points.values())


def best_run(cells: Sequence[studies.EvaluationCell], metric: str) -> studies.EvaluationCell:
    """Return the cell with the highest score on the select split; of equals, the first."""
    return max(cells, key=partial(select_score, metric=metric))


Choices = Mapping[tuple[str, str], Choice]
"""Name of a model and name of a task, as the user gave them, to the grid point that stands for it."""


def choose_all(cells: Cells, tasks: Sequence[PlannedTask], models: Sequence[PlannedModel]) -> Choices:
    """Choose a grid point for every model on every task that it has a finished run of.

    Args:
        cells: The latest row of every planned cell, by identity.
        tasks: In the order of the columns.
        models: In the order of the rows.
    """
    found: dict[tuple[str, str], Choice] = {}
    for task in tasks:
        wanted = len({planned.cell.seed for planned in task.cells})
        for model in models:
            own = (cells.get(planned.id) for planned in task.cells if planned.cell.model == model.name)
            if done := [cell for cell in own if cell is not None and cell.status == FINISHED]:
                found[model.name, task.name] = choose(done, task.task, task.settings, wanted)
    return found


def select_score(cell: studies.EvaluationCell, metric: str) -> float:
    """Return the score that a cell is chosen by: its metric on the select split; 0 where it scored nothing."""
    if not cell.scores:
        return 0.0
    found = cell.scores.get(cell.select or "") or next(iter(cell.scores.values()))
    value = found[metric] if metric in found else next(iter(found.values()))
    return -1.0 if value is None else value


def summarise(
    cells: Cells,
    tasks: Sequence[PlannedTask],
    models: Sequence[PlannedModel],
    protocol: Protocol,
    choices: Choices,
    task_notes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> studies.Evaluation:
    """Make the content of the tables, in percent; the first model is the reference.

    Args:
        cells: The latest row of every planned cell, by identity.
        tasks: In the order of the columns.
        models: In the order of the rows.
        protocol: Decides metrics, averages and the papers beside.
        choices: The grid points whose scores stand for the models.
        task_notes: On the rows and tokens of tasks, by their names; those of the plan by default.
    """
    columns = [column.model_copy(update={"metric": task.metric}) for task in tasks for column in task.columns]
    found = [_model(model, choices, tasks, columns, protocol) for model in models]
    for model in found:
        model.retention = _retention(model, found[0]) if model is not found[0] else {}
    shown = [(column.key, column.metric) for column in columns]
    shapes = [model.published_as for model in models]
    # Tasks that are trained on the same rows say the same of them.
    notes = list(dict.fromkeys(note for task in tasks for note in task_notes.get(task.name, task.notes)))
    rows = ((each.cell, cells.get(each.id)) for task in tasks for each in task.cells)
    failed = ((cell.describe(), row.error) for cell, row in rows if row is not None and row.status != FINISHED)
    failures = failure_notes("cell", failed)
    papers, on_task = protocol.papers or PAPERS, [model.published_as for model in models if model.on_task]
    beside = matching_rows(shapes, shown, papers, on_task=on_task)
    published = [_published(row, protocol, shown, found) for row in beside]
    notes += [COMPUTED_NOTE] if any(row.computed for row in published) else []
    if left_out := len(matching_rows(shapes, shown, papers, on_task=shapes)) - len(beside):
        notes.append(_TASK_NOTE.format(left_out))
    return studies.Evaluation(
        preset=protocol.name,
        average=protocol.table,
        columns=columns,
        models=found,
        published=published,
        notes=[*notes, *failures],
        notes_in_short=[*gather_notes(notes), *failures],
    )


def _model(
    model: PlannedModel, choices: Choices, tasks: Sequence[PlannedTask], columns: Sequence[Column], protocol: Protocol
) -> studies.EvaluatedModel:
    scores: dict[str, studies.ColumnFigure] = {}
    chosen: dict[str, studies.ChosenPoint] = {}
    for task in tasks:
        choice = choices.get((model.name, task.name))
        if choice is None:
            continue
        chosen[task.task.name] = studies.ChosenPoint(
            settings=dict(choice.cells[0].settings), runs=len(choice.cells), wanted=choice.wanted,
            points=choice.points, seeds=[cell.seed for cell in choice.cells],
        )  # fmt: skip
        for column in task.columns:
            if not all(split in choice.cells[0].scores for split in column.splits):
                continue  # Of vectors as wide as the teacher's, or wider than they are cut to.
            metrics = _metrics(choice, column)
            main = metrics.get(task.metric) or next(iter(metrics.values()))
            certain = _certainty(choice, column, task.metric)
            scores[column.key] = studies.ColumnFigure.of_runs(main.runs, metrics=metrics, **certain)
    trained = {column.key for column in columns if not column.detail and not kind_of(column.kind).of_vectors}
    averaged = [key for key in protocol.average or [column.key for column in columns] if key in trained & set(scores)]
    full = len(protocol.average or trained)
    without_cola = [key for key in averaged if key != _COLA] if _COLA in averaged else []
    averages = studies.Averages(
        average=average(averaged, scores, full), without_cola=average(without_cola, scores, full - 1)
    )
    shape = str(model.shape)
    return studies.EvaluatedModel(name=model.name, shape=shape, columns=scores, averages=averages, chosen=chosen)


def _certainty(choice: Choice, column: Column, metric: str) -> dict[str, Any]:
    """Return the interval over rows of one run on one split, in percent, and the one answer of a run that gives it."""
    found: dict[str, Any] = {}
    first = choice.cells[0]
    if len(choice.cells) == len(column.splits) == 1:
        [split] = column.splits
        ends = ((first.intervals or {}).get(split) or {}).get(metric)
        if ends is not None:
            found = {"interval": [100 * end for end in ends], "rows": first.rows.get(split)}
    given = ((cell.only_answer or {}).get(split) for cell in choice.cells for split in column.splits)
    if (only := next(filter(None, given), None)) is not None:
        found["only_answer"] = only
    return found


def _metrics(choice: Choice, column: Column) -> dict[str, studies.Figure]:
    """Every metric of a column over the runs, in percent save thresholds; of several splits, their mean."""
    found: dict[str, studies.Figure] = {}
    for metric in dict.fromkeys(metric for split in column.splits for metric in choice.cells[0].scores[split]):
        runs = [[cell.scores[split].get(metric) for split in column.splits] for cell in choice.cells]
        known = [[value for value in run if value is not None] for run in runs]
        if known == runs:
            scale = 1 if metric.endswith(THRESHOLDS) else 100
            found[metric] = studies.Figure.of_runs(scale * (sum(run) / len(run)) for run in known)
    return found


def average(keys: Sequence[str], scores: Mapping[str, studies.Figure], full: int) -> studies.Average | None:
    """Average over tasks: run by run where all have the same number of runs, else their means."""
    if len(keys) < 2:
        return None
    parts = [scores[key] for key in keys]
    alike = len({len(part.runs) for part in parts}) == 1
    runs = zip(*(part.runs if alike else [part.mean] for part in parts), strict=True)
    return studies.Average.of_runs(map(statistics.fmean, runs), of=list(keys), complete=len(keys) == full)


def _retention(model: studies.EvaluatedModel, reference: studies.EvaluatedModel) -> dict[str, records.Number]:
    """Return the share of the reference's score that is kept, in percent, where that is above 0 and ours not below."""
    pairs: dict[str, tuple[studies.Figure, studies.Figure | None]] = {
        key: (figure, reference.columns.get(key)) for key, figure in model.columns.items()
    }
    for key, ours in model.averages.by_name.items():
        theirs = reference.averages.by_name[key]
        if ours and theirs and ours.of == theirs.of:  # Averages over different tasks are not comparable.
            pairs[key] = (ours, theirs)
    return {
        key: 100 * ours.mean / theirs.mean
        for key, (ours, theirs) in pairs.items()
        if theirs is not None and theirs.mean > 0 and ours.mean >= 0
    }


def _published(
    row: PublishedRow, protocol: Protocol, shown: Sequence[tuple[str, str]], models: Sequence[studies.EvaluatedModel]
) -> studies.PublishedScores:
    """Return a published row under the columns that are shown.

    Its averages are over the same columns as ours: as printed, else computed (and named in `computed`) where it has all
    of these columns.
    """
    columns: dict[str, records.Number] = {
        key: row.scores[key, metric] for key, metric in shown if (key, metric) in row.scores
    }
    whole = bool(protocol.average) and set(protocol.average) <= {key for key, _ in shown}
    over = {(key, metric) for key, metric in shown if key in protocol.average}
    same = whole and set(row.averaged) == over
    printed = {"average": row.average if same else None, "without_cola": row.average_without_cola if same else None}
    computed = {name: _computed(name, columns, models) for name, value in printed.items() if value is None}
    averages = printed | computed
    return studies.PublishedScores(
        **{name: getattr(row, name) for name in ("paper", "table", "model", "teacher", "distilled", "shape", "split")},
        columns=columns,
        average=averages["average"],
        without_cola=averages["without_cola"],
        computed=[name for name, value in computed.items() if value is not None],
    )


def _computed(name: str, columns: Mapping[str, float], models: Sequence[studies.EvaluatedModel]) -> float | None:
    """A published row's average over the columns of our models' average, where these have the same and it has all."""
    over = {tuple(average.of) for model in models if (average := model.averages.by_name[name]) is not None}
    keys = over.pop() if len(over) == 1 else ()
    if not keys or any(key not in columns for key in keys):
        return None
    return sum(columns[key] for key in keys) / len(keys)


def failure_notes(noun: str, failed: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return a line for each reason of failure, with the number and the first that failed.

    Args:
        noun: For one of them: "cell".
        failed: Their titles and reasons.
    """
    reasons: dict[str | None, list[str]] = {}
    for title, reason in failed:
        reasons.setdefault(reason, []).append(title)
    return [f"{counted(len(titles), noun)} failed (first {titles[0]}): {reason}" for reason, titles in reasons.items()]
