"""`summarise`: the content of the tables in percent: figures, averages, retention, and published rows beside."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from limbeck.core import studies
from limbeck.core.studies import FINISHED, Column
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.protocols.protocol import Protocol
from limbeck.evaluation.protocols.published import PAPERS, ColumnMetric, PublishedRow, matching_rows
from limbeck.evaluation.results.averages import averages_of, retention_of
from limbeck.evaluation.results.choices import Cells, Choice, Choices
from limbeck.evaluation.results.notes import failure_notes, gather_notes
from limbeck.evaluation.results.published_rows import published_scores
from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX

_PERCENT = 100
_COMPUTED_NOTE = "† is not printed in the paper: computed from its figures, over the columns of the measured average."
_TASK_NOTE = (
    "Published rows left out: {}, of students distilled on the tasks; they are shown only with students that were "
    "trained on labelled rows."
)


def summarise(
    cells: Cells,
    tasks: Sequence[PlannedTask],
    models: Sequence[PlannedModel],
    protocol: Protocol,
    choices: Choices,
    task_notes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> studies.Evaluation:
    """Make the content of the tables, in percent; the first model is the reference of all retentions.

    Args:
        cells: The latest row of every planned cell, by identity.
        tasks: The tasks, in the order of the columns.
        models: The models, in the order of the rows.
        protocol: The protocol, which decides averages and the papers whose rows are shown.
        choices: The grid points whose scores stand for the models.
        task_notes: Notes on rows and tokens, by the name of the task; by default those of the plan.
    """
    columns = []
    for task in tasks:
        columns += [column.model_copy(update={"metric": task.metric}) for column in task.columns]
    rows = [_row_of(model, choices, tasks, columns, protocol) for model in models]
    reference, *other_rows = rows
    reference.retention = {}
    for row in other_rows:
        row.retention = retention_of(row, reference)

    shown = [ColumnMetric(column.key, column.metric) for column in columns]
    on_task = [model for model in models if model.on_task]
    printed_rows = _printed_rows(models, on_task, shown, protocol)
    published = [published_scores(row, protocol, shown, rows) for row in printed_rows]

    # Tasks that are trained on the same rows have the same notes; each is shown once.
    notes: list[str] = []
    for task in tasks:
        notes += task_notes.get(task.name, task.notes)
    notes = list(dict.fromkeys(notes))
    if any(row.computed for row in published):
        notes.append(_COMPUTED_NOTE)
    # The further rows that would be shown if all models had been distilled on a task.
    left_out = len(_printed_rows(models, models, shown, protocol)) - len(printed_rows)
    if left_out:
        notes.append(_TASK_NOTE.format(left_out))

    failures = failure_notes("measurement", _failed_cells(cells, tasks))
    return studies.Evaluation(
        preset=protocol.name,
        average=protocol.table,
        columns=columns,
        models=rows,
        published=published,
        notes=[*notes, *failures],
        notes_in_short=[*gather_notes(notes), *failures],
    )


def _printed_rows(
    models: Sequence[PlannedModel],
    on_task: Sequence[PlannedModel],
    shown: Sequence[ColumnMetric],
    protocol: Protocol,
) -> list[PublishedRow]:
    """Return the published rows that are shown beside models, which are those of models of the same shapes.

    Args:
        models: The models.
        on_task: Those of them beside which rows of students that were distilled on each task are shown too.
        shown: The columns that are shown, each with its metric.
        protocol: The protocol, which may name the papers.
    """
    return matching_rows(
        [model.published_as for model in models],
        shown,
        protocol.papers or PAPERS,
        on_task=[model.published_as for model in on_task],
    )


def _failed_cells(cells: Cells, tasks: Sequence[PlannedTask]) -> list[tuple[str, str | None]]:
    """Return the planned cells that failed, in words, with the reason of each."""
    failed = []
    for task in tasks:
        for planned in task.cells:
            row = cells.get(planned.id)
            if row is not None and row.status != FINISHED:
                failed.append((planned.cell.describe(), row.error))
    return failed


def _row_of(
    model: PlannedModel, choices: Choices, tasks: Sequence[PlannedTask], columns: Sequence[Column], protocol: Protocol
) -> studies.EvaluatedModel:
    """Return the figures of a model in all columns, with their averages."""
    scores: dict[str, studies.ColumnFigure] = {}
    chosen_points: dict[str, studies.ChosenPoint] = {}
    for task in tasks:
        choice = choices.get((model.name, task.name))
        if choice is None:
            continue
        chosen_points[task.task.name] = studies.ChosenPoint(
            settings=dict(choice.cells[0].settings),
            runs=len(choice.cells),
            wanted=choice.wanted,
            points=choice.points,
            seeds=[cell.seed for cell in choice.cells],
        )
        scored_splits = choice.cells[0].scores
        for column in task.columns:
            # A model has no scores of vectors cut to more components than it has, nor asymmetric ones if its vectors
            # are not as wide as the teacher's.
            is_scored = all(split in scored_splits for split in column.splits)
            if not is_scored:
                continue
            figure = _column_figure(choice, column, task.metric)
            if figure is not None:
                scores[column.key] = figure
    return studies.EvaluatedModel(
        name=model.name,
        shape=str(model.shape),
        columns=scores,
        averages=averages_of(scores, columns, protocol),
        chosen=chosen_points,
    )


def _column_figure(choice: Choice, column: Column, metric: str) -> studies.ColumnFigure | None:
    """Return the figure of a column: its main metric over the runs, with all metrics and their certainty.

    None where a run lacks the main metric: another one must not stand under its heading.
    """
    metrics = _metrics(choice, column)
    if metric not in metrics:
        return None
    certainty = {
        **_interval_of(choice, column, metric),
        **_chance_of(choice, column, metric),
        **_only_answer_of(choice, column),
    }
    return studies.ColumnFigure.of_runs(metrics[metric].runs, metrics=metrics, **certainty)


def _metrics(choice: Choice, column: Column) -> dict[str, studies.Figure]:
    """Return a figure of each metric of a column, whose runs are means over the splits of the column.

    Scores are in percent; thresholds, which stand among them, are not.
    """
    # The metrics are those of the first run.
    names: list[str] = []
    for split in column.splits:
        names += choice.cells[0].scores[split]
    figures = {}
    for name in dict.fromkeys(names):
        scale = 1 if name.endswith(THRESHOLD_SUFFIX) else _PERCENT
        means = [_mean_over_splits(cell, column.splits, name) for cell in choice.cells]
        runs = [scale * mean for mean in means if mean is not None]
        # A metric that another run lacks has no figure.
        if len(runs) == len(means):
            figures[name] = studies.Figure.of_runs(runs)
    return figures


def _mean_over_splits(cell: studies.EvaluationCell, splits: Sequence[str], metric: str) -> float | None:
    """Return the mean of a metric over splits; None where it is unknown on one of them."""
    values = []
    for split in splits:
        value = cell.scores[split].get(metric)
        if value is None:
            return None
        values.append(value)
    return sum(values) / len(values)


def _interval_of(choice: Choice, column: Column, metric: str) -> dict[str, Any]:
    """Return the fields `interval`, in percent, and `rows` of a column's figure.

    Only one run on one split has an interval over the rows; for several the fields are left out.
    """
    if len(choice.cells) != 1 or len(column.splits) != 1:
        return {}
    [cell] = choice.cells
    [split] = column.splits
    intervals = cell.intervals or {}
    interval_of_metric = intervals.get(split, {})
    if metric not in interval_of_metric:
        return {}
    ends = [_PERCENT * end for end in interval_of_metric[metric]]
    return {"interval": ends, "rows": cell.rows.get(split)}


def _chance_of(choice: Choice, column: Column, metric: str) -> dict[str, Any]:
    """Return the field `chance` of a column's figure: the mean score at chance over the splits, in percent.

    It is left out if the metric has none on one of the splits.
    """
    # All runs are scored on the same rows, so they have the chance of the first.
    chance_of_splits = choice.cells[0].chance or {}
    chances = []
    for split in column.splits:
        chance_of_metric = chance_of_splits.get(split, {})
        if metric not in chance_of_metric:
            return {}
        chances.append(chance_of_metric[metric])
    return {"chance": _PERCENT * sum(chances) / len(chances)}


def _only_answer_of(choice: Choice, column: Column) -> dict[str, Any]:
    """Return the fields `only_answer` and `one_answer_runs` of a column's figure.

    They are the answer that a run gives to all rows of a split, and the number of runs that do so. A run with one
    answer has learned nothing, whatever its score. The fields are left out if no run is like that.
    """
    answers = []
    for cell in choice.cells:
        answer = _only_answer_of_run(cell, column)
        if answer:
            answers.append(answer)
    if not answers:
        return {}
    return {"only_answer": answers[0], "one_answer_runs": [len(answers), len(choice.cells)]}


def _only_answer_of_run(cell: studies.EvaluationCell, column: Column) -> str | None:
    """Return the answer that a run gives to all rows of a split of a column; None where it gives several."""
    only_answers = cell.only_answer or {}
    for split in column.splits:
        if only_answers.get(split):
            return only_answers[split]
    return None
