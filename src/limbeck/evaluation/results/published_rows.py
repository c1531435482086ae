"""Rows that papers published, under the columns of the tables, with averages over the same columns as ours."""

import statistics
from collections.abc import Mapping, Sequence

from limbeck.core import records, studies
from limbeck.evaluation.protocols.protocol import Protocol
from limbeck.evaluation.protocols.published import ColumnMetric, PublishedRow

_PRINTED = ("paper", "table", "model", "teacher", "distilled", "shape", "split")
"""Fields of a published row that are shown as they are."""


def published_scores(
    row: PublishedRow,
    protocol: Protocol,
    shown: Sequence[ColumnMetric],
    models: Sequence[studies.EvaluatedModel],
) -> studies.PublishedScores:
    """Return a published row under the columns that are shown.

    Its averages can be compared with ours only if they are over the same columns. If the printed average is, it is
    taken; otherwise the average is computed from the row's figures, if it has all columns, and named in `computed`.

    Args:
        row: The row.
        protocol: The protocol, which may name the columns of the average.
        shown: The columns that are shown, each with its metric.
        models: The models that stand beside it.
    """
    columns: dict[str, records.Number] = {}
    for column in shown:
        if column in row.scores:
            columns[column.column] = row.scores[column]

    # By the name of the average, as `studies.Averages.by_name` has it.
    averages: dict[str, float | None] = {"average": None, "without_cola": None}
    if _is_averaged_as_printed(row, protocol, shown):
        averages = {"average": row.average, "without_cola": row.average_without_cola}
    computed = []
    for name in ("average", "without_cola"):
        if averages[name] is None:
            averages[name] = _computed_average(name, columns, models)
            if averages[name] is not None:
                computed.append(name)
    printed_fields = {name: getattr(row, name) for name in _PRINTED}
    return studies.PublishedScores(
        **printed_fields,
        columns=columns,
        average=averages["average"],
        without_cola=averages["without_cola"],
        computed=computed,
    )


def _is_averaged_as_printed(row: PublishedRow, protocol: Protocol, shown: Sequence[ColumnMetric]) -> bool:
    """Whether the printed average of a row is over the columns of ours, all of which are shown."""
    if not protocol.average:
        return False
    shown_keys = {column.column for column in shown}
    if not all(key in shown_keys for key in protocol.average):
        return False
    averaged = {column for column in shown if column.column in protocol.average}
    return set(row.averaged) == averaged


def _computed_average(
    name: str, columns: Mapping[str, float], models: Sequence[studies.EvaluatedModel]
) -> float | None:
    """Return a published row's average over the columns of our models' average.

    It is None if the averages of our models are over different columns, or if the row lacks one of the columns.

    Args:
        name: Name of the average.
        columns: Figures of the row.
        models: Our models.
    """
    averaged_keys = set()
    for model in models:
        model_average = model.averages.by_name[name]
        if model_average is not None:
            averaged_keys.add(tuple(model_average.of))
    if len(averaged_keys) != 1:
        return None
    [keys] = averaged_keys
    has_all_columns = all(key in columns for key in keys)
    if not keys or not has_all_columns:
        return None
    return statistics.fmean(columns[key] for key in keys)
