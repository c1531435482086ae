"""Figures: a plot with its title, its content in words, and the table of its numbers.

The words and the table give the content to readers who cannot see the plot. A *Pareto front* holds the models that no
other model beats in both quality and speed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.core.blocks import NOTHING, AnyCell, Cell, Figure, Table, slug
from limbeck.report.plots import Heat, Lines, Point, Series
from limbeck.search.pareto import pareto_front

MOST_ROWS = 200
"""Most rows of the table below a figure."""
_MOST_POINTS_IN_WORDS = 12
"""A series of more points is described by its ends and its lowest point."""


def show_number(value: float | None) -> str:
    """Write a number with four significant digits and thousands separators; nothing as a dash."""
    if value is None or not math.isfinite(value):
        return NOTHING
    # Up to 10^15, a float holds every whole number exactly.
    is_whole = value == int(value) and abs(value) < 1e15
    if is_whole or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def lines_figure(title: str, plot: Lines, caption: str = "") -> Figure:
    """Make a figure of series, with a table of their points.

    Points with names, which are models or candidates, get no table: the page has one with all their figures.
    """
    data = None
    if not any(series.names for series in plot.series):
        data = _table_by_place(plot)
    return Figure(slug(title), title, caption, describe_lines(plot), plot, data)


def _table_by_place(plot: Lines) -> Table:
    """Return a table with a row for each place on the horizontal axis, and a column for each series.

    A series may have several points at one place: its cell lists their values, equal ones once.
    """
    places = sorted({x for series in plot.series for x, _ in series.points})
    rows: list[tuple[AnyCell, ...]] = []
    for place in places[:MOST_ROWS]:
        cells = []
        for series in plot.series:
            values = dict.fromkeys(show_number(y) for x, y in series.points if x == place)
            cells.append("; ".join(values) or NOTHING)
        rows.append((show_number(place), *cells))
    labels = [series.label for series in plot.series]
    return Table(plot.y, (plot.x, *labels), tuple(rows), left_out=len(places) - len(rows))


def describe_lines(plot: Lines) -> str:
    """Describe series in numbers: each point of a short one, or the ends and the lowest point of a long one."""
    sentences = [f"{plot.y} against {plot.x}."]
    for series in plot.series:
        points = series.points
        if len(points) == 0:
            words = "no points"
        elif len(points) <= _MOST_POINTS_IN_WORDS:
            words = "; ".join(_named_points(series))
        else:
            lowest = min(points, key=lambda point: point[1])
            words = f"from {_value_and_place(points[0])} to {_value_and_place(points[-1])}"
            words += f", lowest {_value_and_place(lowest)}"
        sentences.append(f"{series.label}: {words}.")
    return " ".join(sentences)


def _named_points(series: Series) -> Iterator[str]:
    """Yield each point in words, after its name if it has one."""
    for index, (x, y) in enumerate(series.points):
        point = f"{show_number(x)}, {show_number(y)}"
        yield f"{series.names[index]}: {point}" if series.names else point


def _value_and_place(point: Point) -> str:
    x, y = point
    return f"{show_number(y)} at {show_number(x)}"


def heat_figure(title: str, heat: Heat, words: str, caption: str = "") -> Figure:
    """Make a figure of a heat map, with a table of its values.

    Args:
        title: Title of the figure.
        heat: The heat map.
        words: Its content in words and numbers, for readers who cannot see it.
        caption: Caption of the figure.

    Raises:
        ValueError: if the values are not a matrix with the named rows and columns, as in a damaged record.
    """
    shape = np.array(heat.values, dtype=float).shape
    if 0 in shape or shape != (len(heat.row_names), len(heat.column_names)):
        raise ValueError(f"values of the shape {shape} do not fit the rows and columns of a heat map")
    rows: list[tuple[AnyCell, ...]] = []
    for name, values in zip(heat.row_names, heat.values, strict=True):
        cells = [Cell(value, "{:.3f}") for value in values]
        rows.append((name, *cells))
    quantities = f"{heat.label}: {heat.row_title} by {heat.column_title}"
    data = Table(quantities, ("", *heat.column_names), tuple(rows))
    return Figure(slug(title), title, caption, words, heat, data)


@dataclass(frozen=True)
class MeasuredModel:
    """A model whose latency and quality are both known.

    Args:
        name: Of the model.
        latency: Milliseconds a pass, or a share of its teacher's.
        quality: Its figure.
    """

    name: str
    latency: float
    quality: float

    @property
    def place(self) -> tuple[float, float]:
        """Its point in a plot of quality against latency."""
        return self.latency, self.quality


def measured(name: str, latency: float | None, quality: float | None) -> list[MeasuredModel]:
    """Return a list of the model if its latency and quality are both known, else an empty list."""
    if latency is None or quality is None:
        return []
    return [MeasuredModel(name, latency, quality)]


def quality_figures(
    models: Sequence[MeasuredModel], quality: str, latency: str, *, lowest: bool = False, front: bool = True
) -> Iterator[Figure]:
    """Draw models by latency and quality, where there are several.

    Args:
        models: The measured models; fewer than two give no figure.
        quality: Label of the vertical axis, with the unit.
        latency: Label of the horizontal axis, with the unit and the batch size.
        lowest: Whether lower values of quality are better, as those of a loss.
        front: Draw the Pareto front. For models of one seed each it should be left out, since chance may decide it.
    """
    if len(models) < 2:
        return
    corner = "lower" if lowest else "upper"
    caption = f"The {corner} left corner is best."
    series = [Series(model.name, [model.place], "points", names=[model.name]) for model in models]
    if front:
        # `pareto_front` minimises both numbers, so a quality of which more is better changes its sign. It returns the
        # indices of the models on the front, the fastest first.
        sign = 1 if lowest else -1
        indices = pareto_front([(sign * model.quality, model.latency) for model in models])
        names = [models[index].name for index in indices]
        caption += f" No other model is both faster and better than any of: {'; '.join(names)}."
        if len(indices) > 1:
            # The front is the first series, which is drawn below the models.
            points = [models[index].place for index in indices]
            series.insert(0, Series("Pareto front", points, "steps", names=names))
    # Axes begin at 0: on a cut axis, a student that keeps 98 % of the quality would lie at the bottom.
    plot = Lines(series, latency, quality, x_from_zero=True, y_from_zero=True)
    yield lines_figure("Quality against latency", plot, caption)
