"""The content of an evaluation's tables: means, averages, retention and published rows beside them."""

import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from limbeck.core import records, studies
from limbeck.core.kinds import kind_of
from limbeck.core.studies import FINISHED, Column
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.protocols.protocol import Protocol
from limbeck.evaluation.protocols.published import PAPERS, PublishedRow, matching_rows
from limbeck.evaluation.results.choices import Cells, Choice, Choices
from limbeck.evaluation.results.notes import failure_notes, gather_notes
from limbeck.kinds.answer_scores import THRESHOLDS

_COLA = "cola"
_PERCENT = 100
COMPUTED_NOTE = "† is not printed in the paper: computed from its figures, over the columns of the measured average."
_TASK_NOTE = (
    "Published rows left out: {}, of students distilled on the tasks; they are shown only beside students trained on "
    "labelled rows."
)
_PRINTED = ("paper", "table", "model", "teacher", "distilled", "shape", "split")
"""Fields of a published row that are shown as they are."""


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
    columns = []
    for task in tasks:
        columns += [column.model_copy(update={"metric": task.metric}) for column in task.columns]
    rows = [_row_of(model, choices, tasks, columns, protocol) for model in models]
    reference = rows[0]
    for row in rows:
        row.retention = {} if row is reference else _retention(row, reference)

    # Published rows of the same shapes; those of students distilled on the tasks beside such students alone.
    shown = [(column.key, column.metric) for column in columns]
    shapes = [model.published_as for model in models]
    on_task = [model.published_as for model in models if model.on_task]
    papers = protocol.papers or PAPERS
    printed_rows = matching_rows(shapes, shown, papers, on_task=on_task)
    published = [_published_row(printed, protocol, shown, rows) for printed in printed_rows]

    # Tasks that are trained on the same rows have the same notes.
    notes: list[str] = []
    for task in tasks:
        notes += task_notes.get(task.name, task.notes)
    notes = list(dict.fromkeys(notes))
    if any(row.computed for row in published):
        notes.append(COMPUTED_NOTE)
    left_out = len(matching_rows(shapes, shown, papers, on_task=shapes)) - len(printed_rows)
    if left_out:
        notes.append(_TASK_NOTE.format(left_out))
    failures = failure_notes("cell", _failed_cells(cells, tasks))
    return studies.Evaluation(
        preset=protocol.name,
        average=protocol.table,
        columns=columns,
        models=rows,
        published=published,
        notes=[*notes, *failures],
        notes_in_short=[*gather_notes(notes), *failures],
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
    chosen: dict[str, studies.ChosenPoint] = {}
    for task in tasks:
        choice = choices.get((model.name, task.name))
        if choice is None:
            continue
        chosen[task.task.name] = studies.ChosenPoint(
            settings=dict(choice.cells[0].settings),
            runs=len(choice.cells),
            wanted=choice.wanted,
            points=choice.points,
            seeds=[cell.seed for cell in choice.cells],
        )
        for column in task.columns:
            # Models lack the scores of vectors as wide as the teacher's, and of widths above their own.
            if all(split in choice.cells[0].scores for split in column.splits):
                scores[column.key] = _column_figure(choice, column, task.metric)
    return studies.EvaluatedModel(
        name=model.name,
        shape=str(model.shape),
        columns=scores,
        averages=_averages(scores, columns, protocol),
        chosen=chosen,
    )


def _column_figure(choice: Choice, column: Column, metric: str) -> studies.ColumnFigure:
    """Return the figure of a column: its main metric over the runs, with all metrics and their certainty."""
    metrics = _metrics(choice, column)
    main = metrics.get(metric) or next(iter(metrics.values()))
    return studies.ColumnFigure.of_runs(main.runs, metrics=metrics, **_certainty(choice, column, metric))


def _averages(
    scores: Mapping[str, studies.ColumnFigure], columns: Sequence[Column], protocol: Protocol
) -> studies.Averages:
    """Return the averages over the columns of the protocol, else over all main columns of trained tasks."""
    trained = {column.key for column in columns if not column.detail and not kind_of(column.kind).of_vectors}
    keys = protocol.average or [column.key for column in columns]
    averaged = [key for key in keys if key in trained and key in scores]
    full = len(protocol.average or trained)
    without_cola = [key for key in averaged if key != _COLA] if _COLA in averaged else []
    return studies.Averages(
        average=average(averaged, scores, full), without_cola=average(without_cola, scores, full - 1)
    )


def _certainty(choice: Choice, column: Column, metric: str) -> dict[str, Any]:
    """Return the interval over rows of one run on one split, in percent, and the one answer of a run that gives it."""
    certainty: dict[str, Any] = {}
    first = choice.cells[0]
    if len(choice.cells) == len(column.splits) == 1:
        [split] = column.splits
        intervals = (first.intervals or {}).get(split) or {}
        ends = intervals.get(metric)
        if ends is not None:
            certainty["interval"] = [_PERCENT * end for end in ends]
            certainty["rows"] = first.rows.get(split)
    for cell in choice.cells:
        for split in column.splits:
            answer = (cell.only_answer or {}).get(split)
            if answer:
                return certainty | {"only_answer": answer}
    return certainty


def _metrics(choice: Choice, column: Column) -> dict[str, studies.Figure]:
    """Return every metric of a column over the runs, in percent save thresholds; of several splits, their mean."""
    names: dict[str, None] = {}
    for split in column.splits:
        names |= dict.fromkeys(choice.cells[0].scores[split])
    figures = {}
    for name in names:
        runs = [[cell.scores[split].get(name) for split in column.splits] for cell in choice.cells]
        means = [_mean(values) for values in runs]
        scale = 1 if name.endswith(THRESHOLDS) else _PERCENT
        known = [scale * mean for mean in means if mean is not None]
        if len(known) == len(runs):
            figures[name] = studies.Figure.of_runs(known)
    return figures


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of values; None where one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def average(keys: Sequence[str], scores: Mapping[str, studies.Figure], full: int) -> studies.Average | None:
    """Average over tasks: run by run where all have the same number of runs, else their means.

    Args:
        keys: Columns to average over; None is returned for fewer than two.
        scores: By column.
        full: Number of columns of the whole average.
    """
    if len(keys) < 2:
        return None
    averaged = [scores[key] for key in keys]
    have_same_runs = len({len(figure.runs) for figure in averaged}) == 1
    values = [figure.runs if have_same_runs else [figure.mean] for figure in averaged]
    runs = [statistics.fmean(run) for run in zip(*values, strict=True)]
    return studies.Average.of_runs(runs, of=list(keys), complete=len(keys) == full)


def _retention(model: studies.EvaluatedModel, reference: studies.EvaluatedModel) -> dict[str, records.Number]:
    """Return the share of the reference's score that a model keeps, in percent, by column and average.

    Only where the reference's score is above 0 and the model's is not below.
    """
    pairs: dict[str, tuple[studies.Figure, studies.Figure | None]] = {}
    for key, column_figure in model.columns.items():
        pairs[key] = (column_figure, reference.columns.get(key))
    for key, model_average in model.averages.by_name.items():
        reference_average = reference.averages.by_name[key]
        if model_average and reference_average and model_average.of == reference_average.of:
            pairs[key] = (model_average, reference_average)  # Averages over different tasks are not comparable.
    retention: dict[str, records.Number] = {}
    for key, (figure, reference_figure) in pairs.items():
        if reference_figure is not None and reference_figure.mean > 0 and figure.mean >= 0:
            retention[key] = _PERCENT * figure.mean / reference_figure.mean
    return retention


def _published_row(
    row: PublishedRow, protocol: Protocol, shown: Sequence[tuple[str, str]], models: Sequence[studies.EvaluatedModel]
) -> studies.PublishedScores:
    """Return a published row under the columns that are shown.

    Its averages are over the same columns as ours: as printed, else computed (and named in `computed`) where it has all
    of these columns.

    Args:
        row: The row.
        protocol: Has the columns of the average.
        shown: The columns that are shown, each with its metric.
        models: The models that stand beside it.
    """
    columns: dict[str, records.Number] = {}
    for key, metric in shown:
        if (key, metric) in row.scores:
            columns[key] = row.scores[key, metric]

    # The printed average is taken where it is over the columns of ours.
    averaged = {(key, metric) for key, metric in shown if key in protocol.average}
    has_all = bool(protocol.average) and set(protocol.average) <= {key for key, _ in shown}
    is_same = has_all and set(row.averaged) == averaged
    averages: dict[str, float | None] = {"average": None, "without_cola": None}
    if is_same:
        averages = {"average": row.average, "without_cola": row.average_without_cola}
    computed = []
    for name in averages:
        if averages[name] is None:
            averages[name] = _computed_average(name, columns, models)
            if averages[name] is not None:
                computed.append(name)
    return studies.PublishedScores(
        **{name: getattr(row, name) for name in _PRINTED},
        columns=columns,
        average=averages["average"],
        without_cola=averages["without_cola"],
        computed=computed,
    )


def _computed_average(
    name: str, columns: Mapping[str, float], models: Sequence[studies.EvaluatedModel]
) -> float | None:
    """Return a published row's average over the columns of our models' average.

    None where these differ between our models, or the row lacks one.

    Args:
        name: Of the average.
        columns: Figures of the row.
        models: Our models.
    """
    averaged = set()
    for model in models:
        model_average = model.averages.by_name[name]
        if model_average is not None:
            averaged.add(tuple(model_average.of))
    if len(averaged) != 1:
        return None
    keys = averaged.pop()
    if not keys or any(key not in columns for key in keys):
        return None
    return sum(columns[key] for key in keys) / len(keys)
