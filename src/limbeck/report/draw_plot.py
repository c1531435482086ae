"""Drawing points and lines over two axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from limbeck.report.draw_legend import Entry, draw_legend
from limbeck.report.draw_names import Box, NamedPoint, name_points
from limbeck.report.marks import (
    DASHES,
    SMALL_TEXT,
    SYMBOLS,
    WIDTH,
    Area,
    Drawing,
    Label,
    Mark,
    Marker,
    Point,
    Stroke,
    series_ink,
    text_width,
)
from limbeck.report.scales import Axis, Scale, make_scale, show

_HEIGHT, _BELOW, _RIGHT, _TITLE = 200.0, 38.0, 12.0, 18.0
_FEW_POINTS = 30


@dataclass(frozen=True)
class Series:
    """What belongs together in a plot.

    Args:
        label: What it is, for the legend.
        points: (x, y) each, finite.
        style: Which colour, marker and dash.
        mark: A line through the points, the points alone, or steps from point to point.
        band: The least and the greatest value at each point, drawn as a band; empty for none.
        names: What each point is; written beside it where there is room.
        numbers: What is written beside each point instead of its name, and always is.
        large: Points that are to be seen first.
    """

    label: str
    points: Sequence[Point]
    style: int = 0
    mark: Literal["line", "points", "steps"] = "line"
    band: Sequence[tuple[float, float]] = ()
    names: Sequence[str] = ()
    numbers: Sequence[str] = ()
    large: bool = False


@dataclass(frozen=True)
class Plot:
    """Series over two axes."""

    series: Sequence[Series]
    x: Axis
    y: Axis


def draw_plot(plot: Plot) -> Drawing:
    """Draw a plot: legend, the vertical axis' label above it, grid, series, names of points."""
    legend, top = draw_legend([_entry(series) for series in plot.series]) if len(plot.series) > 1 else ([], 0.0)
    points = [point for series in plot.series for point in series.points]
    spread = [end for series in plot.series for ends in series.band for end in ends if end > 0 or not plot.y.log]
    upper, lower = top + _TITLE, top + _TITLE + _HEIGHT
    y_scale = make_scale([*(y for _, y in points), *spread], plot.y, lower, upper)
    left = max(text_width(y_scale.label(tick), SMALL_TEXT) for tick in y_scale.ticks or (0.0,)) + 10
    x_scale = make_scale([x for x, _ in points], plot.x, left, WIDTH - _RIGHT)
    marks: list[Mark] = [*legend, *_frame(plot, x_scale, y_scale, left)]
    for series in plot.series:
        marks += _draw_series(series, x_scale, y_scale)
    place = (left, upper - 4, WIDTH, y_scale.start)
    marks += name_points(_points_to_name(plot.series, x_scale, y_scale), _taken(plot.series, x_scale, y_scale), place)
    return Drawing(lower + _BELOW, tuple(marks))


def _entry(series: Series) -> Entry:
    joined = series.mark != "points"
    symbol = SYMBOLS[series.style % len(SYMBOLS)]
    return Entry(
        series.label,
        series_ink(series.style),
        symbol if _has_markers(series) else None,
        _dash(series) if joined else None,
    )


def _dash(series: Series) -> tuple[float, ...]:
    return DASHES[series.style % len(DASHES)]


def _has_markers(series: Series) -> bool:
    if series.mark == "steps":
        return bool(series.names)
    return series.mark == "points" or len(series.points) <= _FEW_POINTS


def _frame(plot: Plot, x_scale: Scale, y_scale: Scale, left: float) -> Iterator[Mark]:
    lower, upper = y_scale.start, y_scale.end
    yield Label(0, upper - 7, plot.y.label, size=SMALL_TEXT, ink="muted")
    for tick in y_scale.ticks:
        y = y_scale.place(tick)
        yield Stroke(((left, y), (WIDTH - _RIGHT, y)), "rule")
        yield Label(left - 5, y + 3.5, y_scale.label(tick), "end", "muted", SMALL_TEXT)
    yield Stroke(((left, lower), (WIDTH - _RIGHT, lower)), "muted")
    reached = -math.inf
    for tick in x_scale.ticks:
        x, text = x_scale.place(tick), x_scale.label(tick)
        yield Stroke(((x, lower), (x, lower + 4)), "muted")
        half = text_width(text, SMALL_TEXT) / 2
        if x - half > reached and x + half <= WIDTH:
            yield Label(x, lower + 16, text, "middle", "muted", SMALL_TEXT)
            reached = x + half + 4
    yield Label((left + WIDTH - _RIGHT) / 2, lower + 32, plot.x.label, "middle", "muted", SMALL_TEXT)


def _draw_series(series: Series, x_scale: Scale, y_scale: Scale) -> Iterator[Mark]:
    ink = series_ink(series.style)
    places = [(x_scale.place(x), y_scale.place(y)) for x, y in series.points]
    if series.band:
        edges = [
            [
                (x, y_scale.place(max(ends[side], y_scale.low)))
                for (x, _), ends in zip(places, series.band, strict=False)
            ]
            for side in (0, 1)
        ]
        yield Area((*edges[0], *reversed(edges[1])), ink, 0.18)
    if series.mark != "points" and len(places) > 1:
        yield Stroke(tuple(_stepped(places) if series.mark == "steps" else places), ink, 2.0, _dash(series))
    if _has_markers(series):
        names = series.names or [""] * len(places)
        for (x, y), value, name in zip(places, series.points, names, strict=False):
            title = f"{name or series.label}: {show(value[0])}, {show(value[1])}"
            size = 5.5 if series.large else 3.5
            yield Marker(x, y, SYMBOLS[series.style % len(SYMBOLS)], ink, size, title=title)


def _stepped(places: Sequence[Point]) -> Iterator[Point]:
    """Go to the next point sideways first, then up or down."""
    yield places[0]
    for (_, y), (x, next_y) in pairwise(places):
        yield (x, y)
        yield (x, next_y)


def names_fit(plot: Plot) -> bool:
    """Return whether the names of all points find room beside them."""
    wanted = sum(bool(name) for series in plot.series for name in series.names)
    return wanted == sum(isinstance(mark, Label) and mark.halo for mark in draw_plot(plot).marks)


def _points_to_name(all_series: Sequence[Series], x_scale: Scale, y_scale: Scale) -> Iterator[NamedPoint]:
    for series in all_series:
        for index, (point, name) in enumerate(zip(series.points, series.names, strict=False)):
            written = series.numbers[index] if series.numbers else name
            at = (x_scale.place(point[0]), y_scale.place(point[1]))
            if written:
                # Steps go on to the right: a name just above them is not crossed.
                yield NamedPoint(at, written, above=series.mark == "steps", always=bool(series.numbers))


def _taken(all_series: Sequence[Series], x_scale: Scale, y_scale: Scale) -> Iterator[Box]:
    """The boxes of what names are not to cover: symbols, and a front that is drawn in steps."""
    for series in all_series:
        places = [(x_scale.place(x), y_scale.place(y)) for x, y in series.points]
        if series.mark == "points" or series.names:
            yield from ((x - 5, y - 5, x + 5, y + 5) for x, y in places)
        elif series.mark == "steps" and places:
            for (x, y), (end_x, end_y) in pairwise(_stepped(places)):
                yield (min(x, end_x), min(y, end_y) - 1, max(x, end_x), max(y, end_y) + 1)
