"""The plots of reports: lines, points with names, rows of values, heat maps, and panels of several plots.

Each is a dataclass that declares the content of a plot; its method `draw` draws it with matplotlib. Text on a plot
comes from records, which anybody may have written, so all of it goes through `label_text`. Axes are fitted to what
they show, intervals included: they need not begin at 0.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import FigureBase
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from limbeck.core.blocks import Drawing
from limbeck.core.escaping import one_line
from limbeck.core.intervals import Interval
from limbeck.report.point_names import place_names

Point: TypeAlias = tuple[float, float]
Points: TypeAlias = Sequence[Point] | NDArray[np.float64]
"""(x, y) each."""
WIDTH = 5.6
"""Width of a plot in inches."""
_PHONE_WIDTH = 4.2
"""Width of a plot for a phone."""
SERIES = 6
"""Most series of a plot: so many differ from each other in colour, marker and dash."""
_LONGEST_LABEL = 48
"""Most letters of a label in a legend or a title."""
_LETTERS_BELOW = 72
"""Most letters in a line of the label of a horizontal axis."""
_LETTERS_BESIDE = 40
"""Most letters in a line of the label of a vertical axis, which is shorter."""
_MOST_MARKED_POINTS = 30
"""Most points of a line that are marked; more markers would hide the line."""
_MOST_VECTOR_POINTS = 1000
"""Most points of a line that is drawn as a vector; a longer line becomes pixels, so that the file stays small."""
_MOST_TICKS = 24
"""Most names along an axis of a heat map."""
_LONGEST_TICK_LABEL = 16
"""Most letters of the name of a row or column of a heat map; longer names are shortened, here and below."""
_LONGEST_ROW_NAME = 34
"""Most letters of the name of a row of a forest plot."""
_LONGEST_POINT_NAME = 30
"""Most letters of a name beside a point."""
_LETTER_INCHES = 0.085
"""Width of a letter of a tick label, with some room; the widest ones are narrower."""
_HEAT_INCHES = 4.0
"""Width of the cells of a heat map, all columns together."""
_NUMBER_LETTER_INCHES = 0.07
"""Width of a letter of the number in a cell of a heat map."""
_ROW_INCHES = 0.3
"""Height of a row of a plot of rows."""
_TITLE_LETTERS_AN_INCH = 9
"""Letters of the title of a panel that fit into an inch of its width."""
_PANEL_TITLE_INCHES = 0.3
"""Height of the title of a panel."""
_LOG_FROM = 20.0
"""Ratio of the highest to the lowest value above which a scale is logarithmic; a linear one would hide low values."""
_WIDE_LOG = 1000.0
"""Ratio of the ends of a logarithmic axis above which only powers of ten are marked; more labels would touch."""
_LEGEND_COLUMNS = 2
_LONGEST_HALF_LABEL = 30
"""Most letters of a label in a legend of two columns."""
_MUTED = "#7c8591"
_NUMBERS = StrMethodFormatter("{x:,.10g}")
_HEAT = LinearSegmentedColormap.from_list("limbeck", ["#ffffff", "#0a3f7f"])
_INK = "#16191d"


def label_text(text: str, longest: int = _LONGEST_LABEL) -> str:
    """Return a text as one printable line, cut in the middle where it is too long: names differ at both ends."""
    line = one_line(text)
    if len(line) <= longest:
        return line
    start = longest // 2
    end = longest - start - 1
    return f"{line[:start]}…{line[-end:]}"


def _name_axes(axes: Axes, x: str, y: str) -> None:
    """Label both axes, each in up to two lines."""
    x_lines = textwrap.wrap(label_text(x, 2 * _LETTERS_BELOW), _LETTERS_BELOW)
    y_lines = textwrap.wrap(label_text(y, 2 * _LETTERS_BESIDE), _LETTERS_BESIDE)
    axes.set_xlabel("\n".join(x_lines))
    axes.set_ylabel("\n".join(y_lines))


def _most_ticks(sheet: FigureBase) -> int:
    """Number of ticks below a plot whose labels have room: up to ten letters each, as in `1,000,000`."""
    box = sheet.get_window_extent()
    root = sheet.get_figure(root=True)
    assert root is not None
    return max(2, int(box.width / root.dpi))


def spans_widely(values: Sequence[float]) -> bool:
    """Return whether values are positive and differ so much that only a logarithmic scale shows all of them."""
    return bool(values) and min(values) > 0 and max(values) > _LOG_FROM * min(values)


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Args:
        label: The entry of the legend.
        points: All finite.
        mark: A line through the points, the points alone, or steps from point to point.
        band: The least and the greatest value at each point, drawn as a band; empty for none.
        names: The name of each point, for the description of the plot.
    """

    label: str
    points: Points
    mark: Literal["line", "points", "steps"] = "line"
    band: Sequence[Point] = ()
    names: Sequence[str] = ()

    def draw(self, axes: Axes) -> None:
        """Draw the points, and the band if there is one."""
        xs = [x for x, _ in self.points]
        ys = [y for _, y in self.points]
        is_long = len(xs) > _MOST_VECTOR_POINTS
        [line] = axes.plot(xs, ys, label=label_text(self.label), rasterized=is_long)
        if self.mark == "points":
            line.set_linestyle("none")
        elif len(xs) > _MOST_MARKED_POINTS:
            line.set_marker("")
        if self.mark == "steps":
            line.set_drawstyle("steps-post")
        if self.band:
            low = [least for least, _ in self.band]
            high = [greatest for _, greatest in self.band]
            axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.18, linewidth=0)


@dataclass(frozen=True)
class Lines:
    """Series over two axes.

    Args:
        series: In the order of the legend.
        x: The quantity of the horizontal axis, with its unit.
        y: The quantity of the vertical axis, with its unit.
        x_is_whole: The ticks of the horizontal axis are whole numbers.
        y_is_log: The vertical axis is logarithmic.
        limit: A value of the horizontal axis, drawn as a line.
    """

    series: Sequence[Series]
    x: str
    y: str
    x_is_whole: bool = False
    y_is_log: bool = False
    limit: float | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches; each row of the legend adds to the height."""
        rows = math.ceil(len(self.series) / self._legend_columns)
        return WIDTH, 3.0 + 0.2 * rows

    @property
    def phone_width(self) -> float | None:
        """Width in inches on a phone, where a plot of `WIDTH` has tiny letters; None where its legend needs more."""
        has_room = self._longest_label <= _LONGEST_HALF_LABEL * _PHONE_WIDTH / WIDTH
        return _PHONE_WIDTH if has_room else None

    @property
    def _legend_columns(self) -> int:
        """One column where a label is so long that it would touch the label beside it."""
        return 1 if self._longest_label > _LONGEST_HALF_LABEL else _LEGEND_COLUMNS

    @property
    def _longest_label(self) -> int:
        """The letters of the longest label in the legend."""
        return max((len(label_text(series.label)) for series in self.series), default=0)

    def draw(self, sheet: FigureBase) -> None:
        """Draw all series, the limit, and a legend where there are several entries."""
        axes = sheet.subplots()
        for series in self.series:
            series.draw(axes)
        if self.limit is not None:
            axes.axvline(self.limit, label="limit", color=_INK, linewidth=1, linestyle="--", marker="")

        _name_axes(axes, self.x, self.y)
        axes.xaxis.set_major_locator(MaxNLocator(_most_ticks(sheet), integer=self.x_is_whole))
        if self.y_is_log:
            _make_y_logarithmic(axes)
        axes.xaxis.set_major_formatter(_NUMBERS)
        axes.yaxis.set_major_formatter(_NUMBERS)

        # Above the plot, a legend hides nothing.
        handles, labels = axes.get_legend_handles_labels()
        if len(handles) > 1:
            axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=self._legend_columns)


def _make_y_logarithmic(axes: Axes) -> None:
    """Give a plot whose points are drawn a logarithmic vertical axis, with ticks whose labels do not touch."""
    axes.set_yscale("log")
    lowest, highest = axes.get_ylim()
    # A wide axis has a tick at 1, 10, 100 and so on, a narrow one also at 2 and 5 times these.
    ticks_of_decade: tuple[int, ...] = (1, 2, 5)
    if highest > _WIDE_LOG * lowest:
        ticks_of_decade = (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=ticks_of_decade))
    axes.yaxis.set_minor_locator(NullLocator())


@dataclass(frozen=True)
class NamedPoint:
    """A point with its name.

    Args:
        name: The name.
        x: Its place on the horizontal axis.
        y: Its place on the vertical axis.
        interval: The ends of the interval of `y`; None where it is not known.
    """

    name: str
    x: float
    y: float
    interval: Interval | None = None


@dataclass(frozen=True)
class NamedPoints:
    """Points with their names beside them, each with the interval of its vertical place.

    Args:
        points: In any order.
        x: The quantity of the horizontal axis, with its unit.
        y: The quantity of the vertical axis, with its unit.
        front: Points that are joined by a line of steps, from left to right; empty for none.
    """

    points: Sequence[NamedPoint]
    x: str
    y: str
    front: Sequence[Point] = ()

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return WIDTH, 3.6

    def draw(self, sheet: FigureBase) -> None:
        """Draw the front, the intervals and the points, then the names where they touch nothing."""
        axes = sheet.subplots()
        if self.front:
            xs, ys = zip(*_corners(self.front), strict=True)
            axes.plot(xs, ys, color=_MUTED, marker="", linestyle="-", linewidth=1)
        for point in self.points:
            if point.interval is not None:
                low, high = point.interval
                axes.plot([point.x, point.x], [low, high], color="C0", marker="", linestyle="-", linewidth=1.5)
            axes.plot([point.x], [point.y], color="C0", marker="o", linestyle="none")

        _name_axes(axes, self.x, self.y)
        # Room for the names of the points at the edges.
        axes.margins(x=0.15, y=0.18)
        axes.xaxis.set_major_locator(MaxNLocator(_most_ticks(sheet)))
        axes.xaxis.set_major_formatter(_NUMBERS)
        axes.yaxis.set_major_formatter(_NUMBERS)
        names = [label_text(point.name, _LONGEST_POINT_NAME) for point in self.points]
        place_names(axes, names, [(point.x, point.y) for point in self.points])


def _corners(points: Sequence[Point]) -> list[Point]:
    """Return the corners of steps through points: each step is level up to the next point, then upright."""
    corners = [points[0]]
    for x, y in points[1:]:
        _, last_y = corners[-1]
        corners += [(x, last_y), (x, y)]
    return corners


@dataclass(frozen=True)
class ValueRow:
    """A value with its name, in a row of its own.

    Args:
        name: The name.
        value: The value.
        interval: The ends of its interval; None where it is not known.
    """

    name: str
    value: float
    interval: Interval | None = None


@dataclass(frozen=True)
class ValueRows:
    """Values with their intervals, each in a row that begins with its name: a forest plot.

    Args:
        rows: From top to bottom.
        x: The quantity, with its unit.
        reference: A value that the others are compared with, drawn as a line through all rows; None for none.
    """

    rows: Sequence[ValueRow]
    x: str
    reference: float | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches; each row adds to the height."""
        return WIDTH, max(2.0, 0.8 + _ROW_INCHES * len(self.rows))

    def draw(self, sheet: FigureBase) -> None:
        """Draw the rows, each as a point on the bar of its interval."""
        axes = sheet.subplots()
        if self.reference is not None:
            axes.axvline(self.reference, color=_MUTED, linewidth=1, linestyle="--", marker="")
        # The vertical place of a row is its number: 0, 1, 2 and so on.
        for number, row in enumerate(self.rows):
            if row.interval is not None:
                axes.plot(row.interval, [number, number], color="C0", marker="", linestyle="-", linewidth=2)
            axes.plot([row.value], [number], color="C0", marker="o", linestyle="none")

        axes.set_yticks(range(len(self.rows)), [label_text(row.name, _LONGEST_ROW_NAME) for row in self.rows])
        # From half a row below the last one up to half a row above the first one, which is at the top.
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        axes.margins(x=0.08)
        axes.grid(axis="x")
        _name_axes(axes, self.x, "")
        # The names of the rows take up to half of the width, which leaves room for about half of the ticks.
        most_ticks = _most_ticks(sheet) // 2 + 1
        axes.xaxis.set_major_locator(MaxNLocator(max(2, most_ticks)))
        axes.xaxis.set_major_formatter(_NUMBERS)


@dataclass(frozen=True)
class Heat:
    """A matrix as a heat map.

    Args:
        values: Rows of equal length; None where nothing is known.
        row_names: One a row.
        column_names: One a column.
        row_title: The quantity along the rows.
        column_title: The quantity along the columns.
        low: The value drawn white.
        high: The value drawn darkest.
        label: The quantity of the cells, with its unit.
        upwards: Whether the first row is at the bottom, as layers are.
    """

    values: Sequence[Sequence[float | None]]
    row_names: Sequence[str]
    column_names: Sequence[str]
    row_title: str
    column_title: str
    low: float
    high: float
    label: str
    upwards: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches; each row adds to the height."""
        return WIDTH, min(6.0, max(2.4, 1.2 + 0.35 * len(self.row_names)))

    def draw(self, sheet: FigureBase) -> None:
        """Draw cells, names and the scale of colours; cells that are large enough have their numbers in them."""
        # The cells are the pixels of one small picture, which every viewer scales up. None becomes NaN, which is blank.
        axes = sheet.subplots()
        matrix = np.array(self.values, dtype=float)
        origin: Literal["lower", "upper"] = "lower" if self.upwards else "upper"
        image = axes.imshow(matrix, cmap=_HEAT, vmin=self.low, vmax=self.high, origin=origin, aspect="auto")
        scale = sheet.colorbar(image, ax=axes, label=label_text(self.label))
        scale.outline.set_visible(False)
        scale.ax.yaxis.set_major_formatter(_NUMBERS)

        self._name_ticks(axes)
        axes.grid(visible=False)
        _name_axes(axes, self.column_title, self.row_title)
        self._write_numbers(axes, matrix)

    def _name_ticks(self, axes: Axes) -> None:
        """Write the names of the rows on the left and of the columns below, as many as have room."""
        rows = _named_indices(len(self.row_names))
        axes.set_yticks(rows, [label_text(self.row_names[row], _LONGEST_TICK_LABEL) for row in rows])

        columns = _named_indices(len(self.column_names))
        labels = [label_text(self.column_names[column], _LONGEST_TICK_LABEL) for column in columns]
        # Names of columns stand side by side. If the longest does not fit into its part of the width, all are upright.
        inches_of_longest = max(map(len, labels)) * _LETTER_INCHES
        inches_per_label = _HEAT_INCHES / len(labels)
        rotation = "horizontal"
        if inches_of_longest > inches_per_label:
            rotation = "vertical"
        axes.set_xticks(columns, labels, rotation=rotation)

    def _write_numbers(self, axes: Axes, matrix: NDArray[np.float64]) -> None:
        """Write the value of each cell into it, or none at all if the longest is wider than a cell."""
        text_by_cell: dict[tuple[int, ...], str] = {}
        for cell, value in np.ndenumerate(matrix):
            # An unknown value is NaN: its cell stays blank.
            if math.isfinite(value):
                text_by_cell[cell] = f"{value:.2g}"
        inches_of_longest = max(map(len, text_by_cell.values()), default=0) * _NUMBER_LETTER_INCHES
        inches_per_cell = _HEAT_INCHES / len(self.column_names)
        if inches_of_longest > inches_per_cell:
            return
        # Numbers are white on the darker half of the colours.
        middle = (self.low + self.high) / 2
        for (row, column), text in text_by_cell.items():
            colour = "white" if matrix[row, column] > middle else "black"
            # On a heat map, the column is the horizontal place of a cell and the row the vertical one.
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)


def _named_indices(count: int) -> range:
    """Return the indices of the rows or columns that are named.

    They are all of up to `_MOST_TICKS`, every second of up to twice as many, and so on.
    """
    step = math.ceil(count / _MOST_TICKS)
    return range(0, count, step)


@dataclass(frozen=True)
class Panels:
    """Several plots on one figure.

    Args:
        panels: The plots, each after its title, row by row.
        columns: Number of plots in a row.
        scale: The size of each plot, relative to its size as a figure of its own.
    """

    panels: Sequence[tuple[str, Drawing]]
    columns: int
    scale: float = 1.0

    @property
    def _rows(self) -> int:
        return math.ceil(len(self.panels) / self.columns)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches; a panel has its title above its plot."""
        tallest = 0.0
        for _, drawing in self.panels:
            _, height = drawing.size
            tallest = max(tallest, height)
        width = self.scale * WIDTH * self.columns
        return width, (self.scale * tallest + _PANEL_TITLE_INCHES) * self._rows

    def draw(self, sheet: FigureBase) -> None:
        """Draw each plot on its part of the figure; the last row may have empty parts."""
        parts = sheet.subfigures(self._rows, self.columns, squeeze=False)
        # Titles of neighbours must not touch.
        longest_title = int(self.scale * WIDTH * _TITLE_LETTERS_AN_INCH)
        for part, (title, drawing) in zip(parts.flat, self.panels, strict=False):
            part.suptitle(label_text(title, longest_title))
            drawing.draw(part)
