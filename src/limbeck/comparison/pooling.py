"""Pooling of figures over seeds: of students that differ in the seed of their distillation alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from limbeck.comparison.held_out_measures import MEASURES
from limbeck.core import studies

T = TypeVar("T")
NO_SCORES = studies.Scores(columns={}, averages=studies.Averages(average=None, without_cola=None), retention={})
"""The scores of models that were not evaluated on tasks."""


def pool_scores(models: Sequence[studies.Scores]) -> studies.Scores:
    """Pool the scores of students that differ in the seed of their distillation.

    A student's figure is its mean over the seeds of its fine-tuning. Mean and deviation of the pooled figure are over
    the students; a single student keeps its own, over its fine-tunings.

    Args:
        models: The scores of each student; none where no student was evaluated.
    """
    if not models:
        return NO_SCORES
    if len(models) == 1:
        return models[0]
    # For each column, and for each average, the figures of all students that have it.
    figures_by_column = values_by_key(model.columns for model in models)
    averages_by_name = values_by_key(_known_averages(model) for model in models)
    pooled_columns = {key: _pooled_column(figures) for key, figures in figures_by_column.items()}
    pooled_averages = {name: _pooled_average(averages) for name, averages in averages_by_name.items()}
    # An average that no student has is None.
    return studies.Scores(
        columns=pooled_columns,
        averages=studies.Averages(
            average=pooled_averages.get("average"), without_cola=pooled_averages.get("without_cola")
        ),
        retention=_pooled_retention(models),
    )


def pool_held_out(
    models: Sequence[studies.ComparisonCell | studies.ComparedTeacher],
) -> dict[str, studies.Figure]:
    """Pool the held-out figures of models, in the order of the measures; a measure without a figure is left out."""
    values_by_measure = values_by_key(model.held_out or {} for model in models)
    figures = {}
    for measure in MEASURES:
        values = [value for value in values_by_measure.get(measure.key, ()) if value is not None]
        if values:
            figures[measure.key] = studies.Figure.of_runs(values)
    return figures


def values_by_key(mappings: Iterable[Mapping[str, T]]) -> dict[str, list[T]]:
    """Return the values that several mappings have under each key."""
    values: dict[str, list[T]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            values.setdefault(key, []).append(value)
    return values


def _pooled_retention(models: Sequence[studies.Scores]) -> dict[str, float]:
    """Return the mean of the students' retentions, by column and average.

    Retention is linear in the score: the mean of all retentions is the retention of the mean. A student with a score
    below 0 has none, and the mean of the others would flatter, so nothing is pooled then.
    """
    pooled = {}
    for key, retentions in values_by_key(model.retention for model in models).items():
        has_student_without = any(key in model.columns and key not in model.retention for model in models)
        if not has_student_without:
            pooled[key] = studies.Figure.of_runs(retentions).mean
    return pooled


def _known_averages(scores: studies.Scores) -> dict[str, studies.Average]:
    """Return the averages that a model has, by their names."""
    return {name: average for name, average in scores.averages.by_name.items() if average is not None}


def _pooled_column(figures: list[studies.ColumnFigure]) -> studies.ColumnFigure:
    """Pool the figures of one column, with all of their metrics."""
    metrics = {}
    for name, figures_of_metric in values_by_key(figure.metrics for figure in figures).items():
        metrics[name] = studies.Figure.of_runs(figure.mean for figure in figures_of_metric)
    column = studies.ColumnFigure.of_runs((figure.mean for figure in figures), metrics=metrics)
    # All students are scored on the same rows, so chance gives all of them the same score.
    column.chance = figures[0].chance
    # The pooled score is meaningless if one student gives all rows the same answer. The first of these is named.
    for figure in figures:
        if figure.only_answer:
            column.only_answer = figure.only_answer
            column.one_answer_runs = _pooled_one_answer_runs(figures)
            break
    return column


def _pooled_one_answer_runs(figures: Sequence[studies.ColumnFigure]) -> list[int] | None:
    """Return the number of fine-tunings that give all rows one answer, then that of all; None where one is unknown."""
    pooled_count = 0
    pooled_runs = 0
    for figure in figures:
        count, all_runs = figure.meaningless_runs
        if count is None:
            return None
        pooled_count += count
        pooled_runs += all_runs
    return [pooled_count, pooled_runs]


def _pooled_average(averages: list[studies.Average]) -> studies.Average:
    """Pool the averages over the most tasks; one over fewer tasks is not comparable with them and is left out."""
    widest = max((average.of for average in averages), key=len)
    comparable = [average for average in averages if average.of == widest]
    is_complete = all(average.complete for average in comparable)
    return studies.Average.of_runs((average.mean for average in comparable), of=widest, complete=is_complete)
