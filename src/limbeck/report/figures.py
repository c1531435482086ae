"""Figures: a plot with its title, its content in words, and the table of its numbers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from limbeck.core import studies
from limbeck.core.blocks import NOTHING, AnyCell, Cell, Figure, Table, mean, slug
from limbeck.report.plots import Bar, BarGroup, Bars, Heat, Lines, Point, Series
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
    """List all series beside each other, a row for each place on the horizontal axis; of many places every nth."""
    headings = [plot.x]
    columns = []
    all_places: set[float] = set()
    for series in plot.series:
        headings.append(series.label)
        cell_by_place = _cells_by_place(series)
        columns.append(cell_by_place)
        all_places.update(cell_by_place)

    # The last place is always listed: it is where a course ended.
    places = sorted(all_places)
    step = max(1, math.ceil(len(places) / MOST_ROWS))
    listed_places = places[::step]
    if places and listed_places[-1] != places[-1]:
        listed_places.append(places[-1])

    rows: list[tuple[AnyCell, ...]] = []
    for place in listed_places:
        cells = [cell_by_place.get(place, NOTHING) for cell_by_place in columns]
        rows.append((show_number(place), *cells))
    left_out = len(places) - len(listed_places)
    return Table(plot.y, tuple(headings), tuple(rows), left_out=left_out)


def _cells_by_place(series: Series) -> dict[float, str]:
    """Return the values of a series by their place in text; several at one place share a cell, each once."""
    texts_by_place: dict[float, dict[str, None]] = {}
    for x, y in series.points:
        texts_by_place.setdefault(x, {})[show_number(y)] = None
    return {x: "; ".join(texts) for x, texts in texts_by_place.items()}


def _table_of_named_points(plot: Lines) -> Table:
    rows: list[tuple[AnyCell, ...]] = []
    for series in plot.series:
        for (x, y), name in zip(series.points, series.names, strict=False):
            rows.append((name, series.label, show_number(x), show_number(y)))
    left_out = max(0, len(rows) - MOST_ROWS)
    return Table(plot.y, ("", "Series", plot.x, plot.y), tuple(rows[:MOST_ROWS]), words=(1,), left_out=left_out)


def _describe(series: Series) -> str:
    """Describe a series in numbers: each of a few points, or the ends and the lowest point of a long series."""
    if not series.points:
        return f"{series.label}: no points."
    if series.names or len(series.points) <= _MOST_POINTS_IN_WORDS:
        return f"{series.label}: {_list_points(series)}."

    first = _value_and_place(series.points[0])
    last = _value_and_place(series.points[-1])
    lowest = _value_and_place(min(series.points, key=lambda point: point[1]))
    return f"{series.label}: from {first} to {last}, lowest {lowest}."


def _value_and_place(point: Point) -> str:
    x, y = point
    return f"{show_number(y)} at {show_number(x)}"


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
    """Make a figure of a heat map; `words` describe its content in numbers for a reader who cannot see it."""
    rows: list[tuple[AnyCell, ...]] = []
    for name, values in zip(heat.row_names, heat.values, strict=False):
        cells = [Cell(value, "{:.3f}") for value in values]
        rows.append((name, *cells))
    quantities = f"{heat.label}: {heat.row_title} by {heat.column_title}"
    data = Table(quantities, ("", *heat.column_names), tuple(rows))
    return Figure(slug(title), title, caption, words, heat, data)


def bars_of(figures: Iterable[tuple[str, studies.Figure | None]], digits: int = 1) -> list[Bar]:
    """Return a bar for each figure that is known.

    A whisker is the deviation over several runs, or the 95 % interval over the rows of the task of a single run.

    Args:
        figures: Each with its label. The colour goes by the place, so that a label has one colour in every group.
        digits: After the point.
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
    """Make a figure of bars; nothing without a bar.

    Args:
        title: Of the figure.
        groups: The bars under their headings.
        label: The quantity, with its unit.
    """
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
        lowest: Lower quality values are better, as of a loss.
        front: Draw the Pareto front. Leave it out for models of one seed each, which it would rank by chance.
    """
    if len(models) < 2:
        return
    corner = "lower" if lowest else "upper"
    caption = f"The {corner} left corner is best."
    # The front is drawn first, so that the models lie on top of it.
    series = []
    if front:
        front_models = _front(models, lowest=lowest)
        names = "; ".join(model.name for model in front_models)
        caption += f" No other model is both faster and better than any of: {names}."
        if len(front_models) > 1:
            series.append(Series("Pareto front", [model.place for model in front_models], "steps"))
    rows: list[tuple[AnyCell, ...]] = []
    for model in models:
        series.append(Series(model.name, [model.place], "points"))
        role = "teacher" if model.teacher else "student"
        rows.append((model.name, role, show_number(model.latency), show_number(model.quality)))

    # Axes begin at 0: on a cut axis, a student that keeps 98 % of the quality would lie at the bottom.
    plot = Lines(series, latency, quality, x_from_zero=True, y_from_zero=True)
    data = Table(quality, ("", "Series", latency, quality), tuple(rows), words=(1,))
    yield replace(lines_figure("Quality against latency", plot, caption), data=data)


def _front(models: Sequence[Measured], *, lowest: bool) -> list[Measured]:
    """Return the models that no other beats in both latency and quality, the fastest first."""
    # `pareto_front` minimises both numbers.
    points = []
    for model in models:
        loss = model.quality if lowest else -model.quality
        points.append((loss, model.latency))
    return [models[index] for index in pareto_front(points)]
