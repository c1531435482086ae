"""Figures: a plot with its title, its content in words, and the table of its numbers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    words = [f"{plot.y} against {plot.x}."]
    is_named = False
    for series in plot.series:
        words.append(_describe(series))
        is_named = is_named or bool(series.names)
    data = _table_of_named_points(plot) if is_named else _table_by_place(plot)
    return Figure(slug(title), title, caption, " ".join(words), plot, data)


def _table_by_place(plot: Lines) -> Table:
    """List all series beside each other, a row for each place on the horizontal axis; of many places some."""
    headings = [plot.x]
    columns = []
    all_places: set[float] = set()
    for series in plot.series:
        headings.append(series.label)
        values = _values_by_place(series)
        columns.append(values)
        all_places.update(values)

    # Of many places every so many are shown, and the last.
    places = sorted(all_places)
    step = math.ceil(len(places) / MOST_ROWS) or 1
    shown = places[::step]
    if places and shown[-1] != places[-1]:
        shown.append(places[-1])

    rows: list[tuple[AnyCell, ...]] = []
    for place in shown:
        cells = [values.get(place, NOTHING) for values in columns]
        rows.append((show_number(place), *cells))
    left_out = len(places) - len(shown)
    return Table(plot.y, tuple(headings), tuple(rows), left_out=left_out)


def _values_by_place(series: Series) -> dict[float, str]:
    """Return the values of a series by their place; different ones at one place stand in one cell."""
    numbers: dict[float, dict[str, None]] = {}
    for x, y in series.points:
        numbers.setdefault(x, {})[show_number(y)] = None
    return {x: "; ".join(values) for x, values in numbers.items()}


def _table_of_named_points(plot: Lines) -> Table:
    rows: list[tuple[AnyCell, ...]] = []
    for series in plot.series:
        for (x, y), name in zip(series.points, series.names, strict=False):
            rows.append((name, series.label, show_number(x), show_number(y)))
    left_out = max(0, len(rows) - MOST_ROWS)
    return Table(plot.y, ("", "Series", plot.x, plot.y), tuple(rows[:MOST_ROWS]), words=(1,), left_out=left_out)


def _describe(series: Series) -> str:
    """Describe a series in numbers: each point of a few, else its course."""
    if not series.points:
        return f"{series.label}: no points."
    if series.names or len(series.points) <= _MOST_POINTS_IN_WORDS:
        return f"{series.label}: {_list_points(series)}."

    # Of a long series its ends and its lowest point.
    start, first = map(show_number, series.points[0])
    end, last = map(show_number, series.points[-1])
    lowest_place, lowest = min(series.points, key=lambda point: point[1])
    bottom = f"lowest {show_number(lowest)} at {show_number(lowest_place)}"
    return f"{series.label}: from {first} at {start} to {last} at {end}, {bottom}."


def _list_points(series: Series) -> str:
    """Name the points of a series, of many the first ones."""
    words = []
    for index, (x, y) in enumerate(series.points[:_MOST_POINTS_IN_WORDS]):
        point = f"{show_number(x)}, {show_number(y)}"
        words.append(f"{series.names[index]}: {point}" if series.names else point)
    left_out = len(series.points) - _MOST_POINTS_IN_WORDS
    if left_out > 0:
        words.append(f"and {left_out} more")
    return "; ".join(words)


def heat_figure(title: str, heat: Heat, words: str, caption: str = "") -> Figure:
    """Make a figure of a heat map; `words` describe in numbers what is seen."""
    rows: list[tuple[AnyCell, ...]] = []
    for name, values in zip(heat.row_names, heat.values, strict=False):
        cells = [Cell(value, "{:.3f}") for value in values]
        rows.append((name, *cells))
    quantities = f"{heat.label}: {heat.row_title} by {heat.column_title}"
    data = Table(quantities, ("", *heat.column_names), tuple(rows))
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

    rows = []
    words = []
    for group, bar in bars:
        rows.append((group.title, bar.label, bar.text))
        words.append(f"{group.title}, {bar.label}: {bar.text}")
    description = f"Bar chart of {label}. {'; '.join(words)}."
    data = Table(title, ("", "Model", label), tuple(rows), words=(1,))
    yield Figure(slug(title), title, caption, description, Bars(groups, label), data)


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

    @property
    def place(self) -> tuple[float, float]:
        """Its point in a plot of quality against latency."""
        return self.latency, self.quality


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
    corner = "lower" if lowest else "upper"
    caption = f"The {corner} left corner is best."
    # The front is drawn first, so that the models lie on top of it.
    series = []
    if front:
        ahead = _front(models, lowest=lowest)
        names = "; ".join(model.name for model in ahead)
        caption += f" No other model is both faster and better than any of: {names}."
        if len(ahead) > 1:
            series.append(Series("Pareto front", [model.place for model in ahead], "steps"))
    rows: list[tuple[AnyCell, ...]] = []
    for model in models:
        series.append(Series(model.name, [model.place], "points"))
        role = "teacher" if model.teacher else "student"
        rows.append((model.name, role, show_number(model.latency), show_number(model.quality)))

    # From 0, or a student that keeps nearly all would lie at the bottom as if it kept nothing.
    plot = Lines(series, latency, quality, x_from_zero=True, y_from_zero=True)
    data = Table(quality, ("", "Series", latency, quality), tuple(rows), words=(1,))
    yield replace(lines_figure("Quality against latency", plot, caption), data=data)


def _front(models: Sequence[Measured], *, lowest: bool) -> list[Measured]:
    """Return the models that no other beats in both latency and quality, the fastest first."""
    losses = []
    for model in models:
        loss = model.quality if lowest else -model.quality
        losses.append((loss, model.latency))
    return [models[index] for index in pareto_front(losses)]
