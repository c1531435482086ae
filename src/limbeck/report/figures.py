"""Figures: a plot with its title, its content in words, and the table of its numbers.

The words and the table give the content to readers who cannot see the plot. A *Pareto front* holds the models that no
other model beats in both quality and speed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.core.blocks import NOTHING, AnyCell, Cell, Drawing, Figure, Table, slug
from limbeck.core.intervals import Interval
from limbeck.report.plots import Heat, Lines, NamedPoint, NamedPoints, Panels, Point, Series, ValueRow, ValueRows
from limbeck.search.pareto import pareto_front

MOST_ROWS = 200
"""Most rows of the table below a figure."""
_MOST_POINTS_IN_WORDS = 12
"""A series of more points is described by its ends and its lowest point."""
_FEWEST_ROWS_OF_A_PLOT = 4
"""Fewer values can be read in their table at a glance."""
_MOST_ROWS_OF_A_PLOT = 40
"""Most models in a plot of rows; the first ones are drawn."""
_FEWEST_LATENCIES = 3
"""Fewest latencies of a plot against latency. With fewer, models lie above each other, and rows show them better."""


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
            # A dictionary holds equal values once, in the order of the points.
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
            lowest = min(points, key=_height)
            words = f"from {_value_and_place(points[0])} to {_value_and_place(points[-1])}"
            words += f", lowest {_value_and_place(lowest)}"
        sentences.append(f"{series.label}: {words}.")
    return " ".join(sentences)


def _named_points(series: Series) -> Iterator[str]:
    """Yield each point in words, after its name if it has one."""
    for index, (x, y) in enumerate(series.points):
        point = f"{show_number(x)}, {show_number(y)}"
        yield f"{series.names[index]}: {point}" if series.names else point


def _height(point: Point) -> float:
    _, y = point
    return y


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
        raise ValueError(
            "the values of a heat map must have one row for each row name and one column for each column name, "
            f"but their shape is {shape}"
        )
    rows: list[tuple[AnyCell, ...]] = []
    for name, values in zip(heat.row_names, heat.values, strict=True):
        cells = [Cell(value, "{:.3f}") for value in values]
        rows.append((name, *cells))
    quantities = f"{heat.label}: {heat.row_title} by {heat.column_title}"
    data = Table(quantities, ("", *heat.column_names), tuple(rows))
    return Figure(slug(title), title, caption, words, heat, data)


@dataclass(frozen=True)
class MeasuredModel:
    """A model whose quality is known.

    Args:
        name: Of the model.
        quality: Its figure.
        interval: The 95 % interval of its quality; None where it is not known.
        latency: Milliseconds a pass, or a share of its teacher's; None where it is not known.
    """

    name: str
    quality: float
    interval: Interval | None = None
    latency: float | None = None


def quality_rows(
    models: Sequence[MeasuredModel], quality: str, reference: float | None = None, *, selection: str = ""
) -> Iterator[Figure]:
    """Draw the quality of each model with its interval, in a row of its own; nothing for fewer than four models.

    Args:
        models: From top to bottom.
        quality: The quantity of their quality, with the unit.
        reference: The quality of the first model, if it is the one that the others are compared with; else None.
        selection: A sentence on the choice of the models; empty where it is all of them.
    """
    if len(models) < _FEWEST_ROWS_OF_A_PLOT:
        return
    rows = [ValueRow(model.name, model.quality, model.interval) for model in models[:_MOST_ROWS_OF_A_PLOT]]
    sentences = []
    if any(row.interval is not None for row in rows):
        sentences.append("Bars are 95 % intervals.")
    if reference is not None:
        sentences.append(f"The dashed line is at {show_number(reference)}, the figure of {models[0].name}.")
    if len(models) > len(rows):
        sentences.append(f"The first {len(rows)} of {len(models)} rows.")
    if selection:
        sentences.append(selection)
    values = [f"{row.name}: {show_number(row.value)}{_interval_words(row.interval)}." for row in rows]
    description = " ".join([f"{quality}.", *values])
    title = "Quality of models"
    yield Figure(slug(title), title, " ".join(sentences), description, ValueRows(rows, quality, reference))


def _interval_words(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f" (95 %: {show_number(low)} to {show_number(high)})"


def quality_against_latency(
    models: Sequence[MeasuredModel],
    quality: str,
    latency: str,
    *,
    lowest: bool = False,
    front: bool = True,
    selection: str = "",
) -> Iterator[Figure]:
    """Draw models by latency and quality; nothing where fewer than three latencies are known.

    Args:
        models: The models; those of unknown latency are left out.
        quality: The quantity of their quality, with the unit.
        latency: The quantity of their latency, with the unit and the batch size.
        lowest: Whether lower values of quality are better, as those of a loss.
        front: Draw the Pareto front. For models of one seed each it should be left out, since chance may decide it.
        selection: A sentence on the choice of the models; empty where it is all of them.
    """
    points = [
        NamedPoint(model.name, model.latency, model.quality, model.interval)
        for model in models
        if model.latency is not None
    ]
    different_latencies = {point.x for point in points}
    if len(different_latencies) < _FEWEST_LATENCIES:
        return
    corner = "lower" if lowest else "upper"
    sentences = [f"The {corner} left corner is best."]
    if selection:
        sentences.append(selection)
    front_points: list[NamedPoint] = []
    if front:
        front_points = _pareto_front(points, lowest=lowest)
        names = "; ".join(point.name for point in front_points)
        sentences.append(f"No other model is both faster and better than any of: {names}.")
    if any(point.interval is not None for point in points):
        sentences.append("Bars are 95 % intervals.")

    words = [f"{quality} against {latency}."]
    for point in points:
        place = f"{show_number(point.x)}, {show_number(point.y)}"
        words.append(f"{point.name}: {place}{_interval_words(point.interval)}.")
    plot = NamedPoints(points, latency, quality, front=[(point.x, point.y) for point in front_points])
    title = "Quality against latency"
    yield Figure(slug(title), title, " ".join(sentences), " ".join(words), plot)


def _pareto_front(points: Sequence[NamedPoint], *, lowest: bool) -> list[NamedPoint]:
    """Return the points (latency, quality) on the Pareto front, the fastest first.

    Args:
        points: All points.
        lowest: Whether lower values of quality are better.
    """
    # `pareto_front` minimises both numbers, so a quality of which more is better changes its sign.
    sign = 1 if lowest else -1
    indices = pareto_front([(sign * point.y, point.x) for point in points])
    return [points[index] for index in indices]


def is_single_point(drawing: Drawing) -> bool:
    """Return whether a drawing shows values at a single place alone, which a table shows better."""
    match drawing:
        case Lines(series=all_series):
            return len({x for series in all_series for x, _ in series.points}) < 2
        case Panels(panels=panels):
            return all(is_single_point(panel) for _, panel in panels)
    return False
