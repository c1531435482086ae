"""Figures from what is to be drawn: the drawing, the words for it, and the table of its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.report.content import NOTHING, Figure, Table, slug
from limbeck.report.draw_bars import BarGroup, draw_bars
from limbeck.report.draw_heat import Heat, draw_heat
from limbeck.report.draw_plot import Plot, Series, draw_plot
from limbeck.report.scales import show

MOST_ROWS = 200
_SAID_POINTS = 12


def plot_figure(title: str, plot: Plot, *, name: str = "", caption: str = "") -> Figure:
    """Make a figure of a plot; points that have names are listed by them, the others by their place.

    Args:
        title: A line.
        plot: What is drawn.
        name: Of its file; by default made of the title.
        caption: What a reader should know to read it.
    """
    named = any(series.names for series in plot.series)
    data = _named_points(plot) if named else _points_by_place(plot)
    words = f"{plot.y.label} over {plot.x.label}. " + " ".join(_describe(series) for series in plot.series)
    return Figure(slug(name or title), title, caption, words, draw_plot(plot), data)


def bars_figure(title: str, groups: Sequence[BarGroup], label: str, *, name: str = "", caption: str = "") -> Figure:
    """Make a figure of bars."""
    rows = [(group.title, bar.label, bar.written) for group in groups for bar in group.bars]
    words = "; ".join(f"{group}, {bar}: {written}" for group, bar, written in rows)
    data = Table(title, ("", "Of", label), tuple(rows), words=(1,))
    return Figure(slug(name or title), title, caption, f"Bars of {label}. {words}.", draw_bars(groups, label), data)


def heat_figure(title: str, heat: Heat, words: str, *, name: str = "", caption: str = "") -> Figure:
    """Make a figure of a heat map.

    Args:
        title: A line.
        heat: What is drawn.
        words: What is seen, in numbers.
        name: Of its file; by default made of the title.
        caption: What a reader should know to read it.
    """
    rows = [
        (name_of_row, *(NOTHING if value is None else f"{value:.3f}" for value in values))
        for name_of_row, values in zip(heat.row_names, heat.values, strict=False)
    ]
    data = Table(f"{heat.label}: {heat.row_title} by {heat.column_title}", ("", *heat.column_names), tuple(rows))
    return Figure(slug(name or title), title, caption, words, draw_heat(heat), data)


def _points_by_place(plot: Plot) -> Table:
    """List all series beside each other, a row for each place on the horizontal axis."""
    values = [dict(series.points) for series in plot.series]
    places = sorted({x for found in values for x in found})
    step = max(1, -(-len(places) // MOST_ROWS))
    shown = [place for index, place in enumerate(places) if index % step == 0 or index == len(places) - 1]
    rows = tuple((show(x), *(_cell(found.get(x)) for found in values)) for x in shown)
    headings = (plot.x.label, *(series.label for series in plot.series))
    return Table(plot.y.label, headings, rows, left_out=len(places) - len(shown))


def _named_points(plot: Plot) -> Table:
    rows = [
        (name, series.label, show(x), show(y))
        for series in plot.series
        for (x, y), name in zip(series.points, series.names or [""] * len(series.points), strict=False)
        if name
    ]
    headings = ("", "Shown as", plot.x.label, plot.y.label)
    return Table(plot.y.label, headings, tuple(rows[:MOST_ROWS]), words=(1,), left_out=max(0, len(rows) - MOST_ROWS))


def _cell(value: float | None) -> str:
    return NOTHING if value is None else show(value)


def _describe(series: Series) -> str:
    """Say in numbers what a series shows: each point of a few, else its course."""
    if not series.points:
        return f"{series.label}: nothing."
    if series.names or len(series.points) <= _SAID_POINTS:
        names = series.names or [""] * len(series.points)
        said = "; ".join(
            f"{name + ': ' if name else ''}{show(x)}, {show(y)}"
            for (x, y), name in list(zip(series.points, names, strict=False))[:_SAID_POINTS]
        )
        more = f"; and {len(series.points) - _SAID_POINTS} more" if len(series.points) > _SAID_POINTS else ""
        return f"{series.label}: {said}{more}."
    first, last = series.points[0], series.points[-1]
    low = min(series.points, key=lambda point: point[1])
    return (
        f"{series.label}: from {show(first[1])} at {show(first[0])} to {show(last[1])} at {show(last[0])}, "
        f"lowest {show(low[1])} at {show(low[0])}."
    )
