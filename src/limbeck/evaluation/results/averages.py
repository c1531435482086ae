"""Averages over tasks, and retention: the share of the reference's scores that a model keeps."""

import statistics
from collections.abc import Mapping, Sequence

from limbeck.core import records, studies
from limbeck.core.kinds import kind_of
from limbeck.core.studies import Column
from limbeck.evaluation.protocols.protocol import Protocol

_COLA = "cola"
"""Some papers leave it out of their averages: its scores differ most between runs."""
_PERCENT = 100


def averages_of(
    scores: Mapping[str, studies.ColumnFigure], columns: Sequence[Column], protocol: Protocol
) -> studies.Averages:
    """Return the averages over the columns of the protocol, else over the first columns of all trained tasks.

    Further columns of a task are of its other splits, such as its test rows: the mean of two splits is no average over
    tasks.

    Args:
        scores: Figures of a model, by column.
        columns: All columns.
        protocol: May name the columns of its paper's average.
    """
    main_keys = [column.key for column in columns if not column.detail and not kind_of(column.kind).of_vectors]
    first_keys: dict[str | None, str] = {}
    for column in columns:
        if column.key in main_keys:
            first_keys.setdefault(column.task or column.key, column.key)
    wanted = protocol.average or tuple(first_keys.values())
    averaged = [key for key in wanted if key in main_keys and key in scores]
    # Without CoLA among the columns there is no second average: that of no columns is None.
    without_cola: list[str] = []
    if _COLA in averaged:
        without_cola = [key for key in averaged if key != _COLA]
    return studies.Averages(
        average=average(averaged, scores, full=len(wanted)),
        without_cola=average(without_cola, scores, full=len(wanted) - 1),
    )


def average(keys: Sequence[str], scores: Mapping[str, studies.Figure], full: int) -> studies.Average | None:
    """Return the average of several columns; None for fewer than two.

    Where all columns have the same number of runs, run k of the average is the mean of their runs k, so that the
    average has a deviation over runs. Otherwise it has one value, the mean of their means.

    Args:
        keys: The columns to average over.
        scores: Figures by column.
        full: Number of columns of a complete average.
    """
    if len(keys) < 2:
        return None
    figures = [scores[key] for key in keys]
    numbers_of_runs = {len(figure.runs) for figure in figures}
    if len(numbers_of_runs) == 1:
        runs_of_columns = [figure.runs for figure in figures]
        runs = [statistics.fmean(values) for values in zip(*runs_of_columns, strict=True)]
    else:
        runs = [statistics.fmean(figure.mean for figure in figures)]
    return studies.Average.of_runs(runs, of=list(keys), complete=len(keys) == full)


def retention_of(model: studies.EvaluatedModel, reference: studies.EvaluatedModel) -> dict[str, records.Number]:
    """Return the share of the reference's score that a model keeps, in percent, by column and average.

    There is no share where the reference's score is 0 or below, or the model's is below 0.
    """
    # The figures of both models under the same keys: columns that both have, and averages over the same columns.
    figures: dict[str, studies.Figure] = {}
    reference_figures: dict[str, studies.Figure] = {}
    for key, column_figure in model.columns.items():
        if key in reference.columns:
            figures[key] = column_figure
            reference_figures[key] = reference.columns[key]
    for name, model_average in model.averages.by_name.items():
        reference_average = reference.averages.by_name[name]
        if model_average is None or reference_average is None:
            continue
        if model_average.of == reference_average.of:
            figures[name] = model_average
            reference_figures[name] = reference_average

    retention: dict[str, records.Number] = {}
    for key, figure in figures.items():
        reference_mean = reference_figures[key].mean
        if reference_mean > 0 and figure.mean >= 0:
            retention[key] = _PERCENT * figure.mean / reference_mean
    return retention
