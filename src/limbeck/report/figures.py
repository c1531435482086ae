"""Figures: a plot with its title, its content in words, and the table of its numbers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from limbeck.core import studies
from limbeck.core.blocks import NOTHING, AnyCell, Cell, Figure, Table, mean, slug
from limbeck.report.plots import Bar, BarGroup, Bars, Heat, Lines, Series
from limbeck.report.quality import ends_of
from limbeck.search.pareto import pareto_front

MOST_ROWS = 200
_MOST_POINTS_IN_WORDS = 12


def show_number(value: float | None) -> str:
    """Write a number with four significant digits and thousands separators; nothing as a dash."""
    if value is None or not math.isfinite(value):
        return NOTHING
    is_whole = value == int(value) and abs(value) < 1e15
    if is_whole or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def lines_figure(title: str, plot: Lines, caption: str = "") -> Figure:
    """Make a figure of series; points that have names are listed by them, the others by their place."""
    is_named = any(series.names for series in plot.series)
    data = _table_of_named_points(plot) if is_named else _table_by_place(plot)
    courses = " ".join(_describe(series) for series in plot.series)
    return Figure(slug(title), title, caption, f"{plot.y} against {plot.x}. {courses}", plot, data)


def _table_by_place(plot: Lines) -> Table:
    """List all series beside each other, a row for each place on the horizontal axis; of many places some."""
    columns = [_values_by_place(series) for series in plot.series]
    places = sorted({x for values_by_place in columns for x in values_by_place})
    step = math.ceil(len(places) / MOST_ROWS) or 1
    shown = places[::step]
    if places and shown[-1] != places[-1]:
        shown.append(places[-1])

    rows: list[tuple[AnyCell, ...]] = []
    for place in shown:
        cells = [values_by_place.get(place, NOTHING) for values_by_place in columns]
        rows.append((show_number(place), *cells))
    headings = (plot.x, *(series.label for series in plot.series))
    return Table(plot.y, headings, tuple(rows), left_out=len(places) - len(shown))


def _values_by_place(series: Series) -> dict[float, str]:
    """Return the values of a series by their place; several at one place stand in one cell."""
    values: dict[float, list[str]] = {}
    for x, y in series.points:
        values.setdefault(x, []).append(show_number(y))
    return {x: "; ".join(numbers) for x, numbers in values.items()}


def _table_of_named_points(plot: Lines) -> Table:
    rows: list[tuple[AnyCell, ...]] = []
    for series in plot.series:
        for (x, y), name in zip(series.points, series.names, strict=False):
            rows.append((name, series.label, show_number(x), show_number(y)))
    left_out = max(0, len(rows) - MOST_ROWS)
    return Table(plot.y, ("", "Series", plot.x, plot.y), tuple(rows[:MOST_ROWS]), words=(1,), left_out=left_out)


def _describe(series: Series) -> str:
    """Describe a series in numbers: each point of a few, else its course."""
    points = [f"{show_number(x)}, {show_number(y)}" for x, y in series.points]
    if not points:
        return f"{series.label}: no points."
    if series.names:
        points = [f"{name}: {point}" for name, point in zip(series.names, points, strict=False)]
    if series.names or len(points) <= _MOST_POINTS_IN_WORDS:
        left_out = len(points) - _MOST_POINTS_IN_WORDS
        more = f"; and {left_out} more" if left_out > 0 else ""
        return f"{series.label}: {'; '.join(points[:_MOST_POINTS_IN_WORDS])}{more}."

    start, first = map(show_number, series.points[0])
    end, last = map(show_number, series.points[-1])
    lowest_place, lowest = min(series.points, key=lambda point: point[1])
    bottom = f"lowest {show_number(lowest)} at {show_number(lowest_place)}"
    return f"{series.label}: from {first} at {start} to {last} at {end}, {bottom}."


def heat_figure(title: str, heat: Heat, words: str, caption: str = "") -> Figure:
    """Make a figure of a heat map; `words` describe in numbers what is seen."""
    rows: list[tuple[AnyCell, ...]] = []
    for name, values in zip(heat.row_names, heat.values, strict=False):
        rows.append((name, *(Cell(value, "{:.3f}") for value in values)))
    data = Table(f"{heat.label}: {heat.row_title} by {heat.column_title}", ("", *heat.column_names), tuple(rows))
    return Figure(slug(title), title, caption, words, heat, data)


def bars_of(figures: Iterable[tuple[str, studies.Figure | None]], digits: int = 1) -> list[Bar]:
    """Return the bars of the figures that are known, each with its label, in colours by their order.

    A whisker is the deviation over runs, or of one run the 95 % interval over the rows of its task.
    """
    bars = []
    for style, (label, figure) in enumerate(figures):
        if figure is None:
            continue
        ends = None
        if figure.deviation is not None:
            ends = (figure.mean - figure.deviation, figure.mean + figure.deviation)
        elif isinstance(figure, studies.ColumnFigure):
            ends = ends_of(figure.interval)
        bars.append(Bar(label, figure.mean, str(mean(figure, digits)), style, ends))
    return bars


def bars_figure(title: str, groups: Sequence[BarGroup], label: str) -> Iterator[Figure]:
    """Make a figure of bars; nothing without a bar."""
    bars = [(group, bar) for group in groups for bar in group.bars]
    if not bars:
        return
    caption = ""
    if any(bar.ends is not None for _, bar in bars):
        caption = "Whiskers show the standard deviation over seeds, or of one run the 95 % interval over its rows."
    rows = tuple((group.title, bar.label, bar.text) for group, bar in bars)
    words = "; ".join(f"{group.title}, {bar.label}: {bar.text}" for group, bar in bars)
    data = Table(title, ("", "Model", label), rows, words=(1,))
    yield Figure(slug(title), title, caption, f"Bar chart of {label}. {words}.", Bars(groups, label), data)


@dataclass(frozen=True)
class Measured:
    """A model whose latency and quality are both known.

    Args:
        name: Of the model.
        latency: Milliseconds a pass, or a share of its teacher's.
        quality: Its figure.
        teacher: Whether it is a teacher.
    """

    name: str
    latency: float
    quality: float
    teacher: bool = False


def measured(name: str, latency: float | None, quality: float | None, *, teacher: bool = False) -> list[Measured]:
    """Return a model if its latency and quality are both known, else nothing."""
    if latency is None or quality is None:
        return []
    return [Measured(name, latency, quality, teacher)]


def quality_figures(
    models: Sequence[Measured], quality: str, latency: str, *, lowest: bool = False, front: bool = True
) -> Iterator[Figure]:
    """Draw models by latency and quality, where there are several.

    Args:
        models: Those that were measured.
        quality: The quantity, with its unit.
        latency: The quantity of the horizontal axis, with its unit and the kind of pass.
        lowest: Less is better of the quality.
        front: Draw the front of those that no other beats in both; of one seed each that would be a ranking by chance.
    """
    if len(models) < 2:
        return
    title = "Quality against latency"
    corner = "lower" if lowest else "upper"
    caption = f"The {corner} left corner is best."
    series = []
    if front:
        ahead = _front(models, lowest=lowest)
        caption += f" No other model is both faster and better than any of: {'; '.join(one.name for one in ahead)}."
        if len(ahead) > 1:
            series.append(Series("Pareto front", [(model.latency, model.quality) for model in ahead], "steps"))
    series += [Series(model.name, [(model.latency, model.quality)], "points") for model in models]

    # From 0, or a student that keeps nearly all would lie at the bottom as if it kept nothing.
    plot = Lines(series, latency, quality, x_from_zero=True, y_from_zero=True)
    rows: list[tuple[AnyCell, ...]] = []
    for model in models:
        role = "teacher" if model.teacher else "student"
        rows.append((model.name, role, show_number(model.latency), show_number(model.quality)))
    data = Table(quality, ("", "Series", latency, quality), tuple(rows), words=(1,))
    words = f"{quality} against {latency}. " + " ".join(_describe(each) for each in series)
    yield Figure(slug(title), title, caption, words, plot, data)


def _front(models: Sequence[Measured], *, lowest: bool) -> list[Measured]:
    sign = 1 if lowest else -1
    places = [(sign * model.quality, model.latency) for model in models]
    return [models[index] for index in pareto_front(places)]
