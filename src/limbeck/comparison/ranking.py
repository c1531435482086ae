"""The figure that ranks the methods of a comparison, and the ranks of those that differ beyond chance."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from limbeck.comparison.held_out_measures import MEASURES
from limbeck.core import studies
from limbeck.core.intervals import is_greater

_AVERAGES = {"without_cola": "average without CoLA", "average": "average"}
"""The averages that may rank, in the order of preference, and their titles."""


class Rank(NamedTuple):
    """The place of a row among those of its student.

    Attributes:
        number: 1, plus one for each row that is better beyond chance; None for a row that is not ranked.
        is_best_mapping: Whether its layer mapping is better, beyond chance, than another of the same method, and none
            is better than it.
    """

    number: int | None = None
    is_best_mapping: bool = False


def choose_main_figure(
    rows: Sequence[studies.ComparedRow], columns: Sequence[studies.Column]
) -> studies.MainFigure | None:
    """Choose the figure that ranks the rows.

    The first of these figures that a row has is chosen: the average without CoLA (as in the comparative study's table
    3), the average, the first task, the first held-out measure. An average is over the tasks of the row that has most.

    Args:
        rows: The rows of methods with a finished run.
        columns: The columns of the tasks.

    Returns:
        The figure; None where no row has any of them.
    """
    for name, title in _AVERAGES.items():
        averages = [row.averages.by_name[name] for row in rows]
        tasks_of_averages = [average.of for average in averages if average is not None]
        if tasks_of_averages:
            most_tasks = max(tasks_of_averages, key=len)
            return studies.MainFigure(kind="averages", key=name, title=title, of=most_tasks)
    for column in columns:
        # A detail is a part of another column, such as one language of a mean over several.
        has_figure = any(column.key in row.columns for row in rows)
        if has_figure and not column.detail:
            return studies.MainFigure(kind="columns", key=column.key, title=column.title)
    for measure in MEASURES:
        if any(measure.key in row.held_out for row in rows):
            return studies.MainFigure(
                kind="held_out",
                key=measure.key,
                title=f"held-out {measure.title}",
                digits=measure.digits,
                best=measure.best,
            )
    return None


def main_figure_of(row: studies.ComparedScores, main: studies.MainFigure | None) -> studies.Figure | None:
    """Return the figure that a row is ranked by; None where it has none that compares with those of other rows."""
    if main is None:
        return None
    figures: Mapping[str, studies.Figure | None] = row.columns
    if main.kind == "averages":
        figures = row.averages.by_name
    elif main.kind == "held_out":
        figures = row.held_out
    figure = figures.get(main.key)
    if figure is None:
        return None
    # A row with fewer tasks has an average over these alone.
    if isinstance(figure, studies.Average) and figure.of != main.of:
        return None
    return studies.Figure(mean=figure.mean, deviation=figure.deviation, runs=figure.runs)


def ranks_of(rows: Sequence[studies.ComparedRow], main: studies.MainFigure | None) -> list[Rank]:
    """Return the rank of each row of a student.

    A row is better than another only if the figures of their seeds differ beyond chance, see `is_greater`. With a
    single seed nothing can be told from chance, so nothing is ranked. A meaningless score has no rank either.

    Args:
        rows: The rows of one student, with their main figures.
        main: The figure that ranks them, see `choose_main_figure`.
    """
    sign = -1 if main is not None and main.best == "lowest" else 1
    # The figures by seed of each row that can be ranked, by the index of the row.
    ranked: dict[int, dict[int, float]] = {}
    for index, row in enumerate(rows):
        if main is not None and row.is_meaningless(main.key):
            continue
        figures_by_seed = _figures_by_seed(row, sign)
        if figures_by_seed is not None:
            ranked[index] = figures_by_seed

    ranks = [Rank() for _ in rows]
    if len(ranked) < 2:
        return ranks
    for index, figures in ranked.items():
        better_rows = 0
        # Rows of the same method differ in their mapping. The best mapping is better than another one, and no other is
        # better than it.
        beats_other_mapping = False
        is_beaten_by_other_mapping = False
        for rival_index, rival_figures in ranked.items():
            if rival_index == index:
                continue
            is_beaten = is_greater(rival_figures, figures)
            if is_beaten:
                better_rows += 1
            if rows[rival_index].method != rows[index].method:
                continue
            if is_beaten:
                is_beaten_by_other_mapping = True
            if is_greater(figures, rival_figures):
                beats_other_mapping = True
        is_best_mapping = beats_other_mapping and not is_beaten_by_other_mapping
        ranks[index] = Rank(number=1 + better_rows, is_best_mapping=is_best_mapping)
    return ranks


def _figures_by_seed(row: studies.ComparedRow, sign: int) -> dict[int, float] | None:
    """The main figure of a row for each of its seeds, times a sign that makes higher figures better.

    None for a row that is not ranked, since it has a single run or lacks the figure of a seed.
    """
    if row.main is None or len(row.main.runs) != len(row.seeds) or row.finished < 2:
        return None
    return {seed: sign * value for seed, value in zip(row.seeds, row.main.runs, strict=True)}
