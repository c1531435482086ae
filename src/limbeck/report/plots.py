"""The plots of reports: lines, heat maps, and panels of several plots.

Each is a dataclass that declares the content of a plot; its method `draw` draws it with matplotlib. Text on a plot
comes from records, which anybody may have written, so all of it goes through `label_text`.
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

Point: TypeAlias = tuple[float, float]
Points: TypeAlias = Sequence[Point] | NDArray[np.float64]
"""(x, y) each."""
WIDTH = 5.6
"""Width of a plot in inches."""
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
_MOST_NUMBERED_COLUMNS = 14
"""Most columns of a heat map whose cells have their numbers in them."""
_MOST_TICKS = 32
"""Most names along an axis of a heat map."""
_LONGEST_TICK_LABEL = 16
_LONGEST_LEVEL_LABEL = 3
"""Longer labels below a heat map are turned by 90 degrees, so that they do not overlap."""
_LOG_FROM = 20.0
"""Ratio of the highest to the lowest value above which a scale is logarithmic; a linear one would hide low values."""
_LEGEND_COLUMNS = 2
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
        x_from_zero: The horizontal axis begins at 0.
        y_from_zero: The vertical axis begins at 0, unless a value is below it.
        y_is_log: The vertical axis is logarithmic.
        limit: A value of the horizontal axis, drawn as a line.
    """

    series: Sequence[Series]
    x: str
    y: str
    x_is_whole: bool = False
    x_from_zero: bool = False
    y_from_zero: bool = False
    y_is_log: bool = False
    limit: float | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches; each row of the legend adds to the height."""
        rows = math.ceil(len(self.series) / _LEGEND_COLUMNS)
        return WIDTH, 3.0 + 0.2 * rows

    @property
    def _is_negative(self) -> bool:
        """Whether a value is below 0."""
        return any(y < 0 for series in self.series for _, y in series.points)

    def draw(self, sheet: FigureBase) -> None:
        """Draw all series, the limit, and a legend where there are several entries."""
        axes = sheet.subplots()
        for series in self.series:
            series.draw(axes)
        if self.limit is not None:
            axes.axvline(self.limit, label="limit", color=_INK, linewidth=1, linestyle="--", marker="")

        _name_axes(axes, self.x, self.y)
        if self.x_is_whole:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if self.x_from_zero:
            axes.set_xlim(left=0)
        if self.y_is_log:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())
        elif self.y_from_zero and not self._is_negative:
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(_NUMBERS)
        axes.yaxis.set_major_formatter(_NUMBERS)

        # Above the plot, a legend hides nothing.
        handles, labels = axes.get_legend_handles_labels()
        if len(handles) > 1:
            axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=_LEGEND_COLUMNS)


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
        """Width and height in inches."""
        share = len(self.row_names) / max(len(self.column_names), 1)
        return WIDTH, min(6.0, max(2.4, 1.2 + 3.6 * share))

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

        # If there are more than `_MOST_TICKS` rows or columns, every second or third has its name, and so on.
        row_step = math.ceil(len(self.row_names) / _MOST_TICKS)
        rows = range(0, len(self.row_names), row_step)
        axes.set_yticks(rows, [label_text(self.row_names[row], _LONGEST_TICK_LABEL) for row in rows])
        column_step = math.ceil(len(self.column_names) / _MOST_TICKS)
        columns = range(0, len(self.column_names), column_step)
        labels = [label_text(self.column_names[column], _LONGEST_TICK_LABEL) for column in columns]
        is_turned = max(map(len, labels)) > _LONGEST_LEVEL_LABEL
        axes.set_xticks(columns, labels, rotation="vertical" if is_turned else "horizontal")
        axes.grid(visible=False)
        _name_axes(axes, self.column_title, self.row_title)

        if len(self.column_names) <= _MOST_NUMBERED_COLUMNS:
            # Numbers are white on the darker half of the colours.
            middle = (self.low + self.high) / 2
            for (row, column), value in np.ndenumerate(matrix):
                if math.isfinite(value):
                    colour = "white" if value > middle else "black"
                    axes.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=7, color=colour)


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
        """Width and height in inches."""
        tallest = max(drawing.size[1] for _, drawing in self.panels)
        return self.scale * WIDTH * self.columns, (self.scale * tallest + 0.3) * self._rows

    def draw(self, sheet: FigureBase) -> None:
        """Draw each plot on its part of the figure; the last row may have empty parts."""
        parts = sheet.subfigures(self._rows, self.columns, squeeze=False)
        for part, (title, drawing) in zip(parts.flat, self.panels, strict=False):
            part.suptitle(label_text(title))
            drawing.draw(part)
