"""Drawing declared plots with matplotlib: one figure, as SVG inside a page and as a file.

Lengths are in points, and y grows downwards. A page is drawn in stand-ins for the inks, which its style sheet sets for
the light and the dark theme; a file in the light ones.
"""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.style import context as style_context
from matplotlib.textpath import text_to_path
from matplotlib.ticker import LogLocator, MaxNLocator

from limbeck.core import blocks, files
from limbeck.core.escaping import printable
from limbeck.report import plots

WIDTH = 400.0
"""Of a figure, and of each panel."""
_HEIGHT, _GAP, _TEXT = 200.0, 16.0, 11.0
_MARKERS = ("o", "s", "^", "D", "v", "X")
_DASHES = ((), (6, 3), (2, 2), (8, 2, 2, 2), (4, 1.5), (1, 3))
"""One of each for every style: what colour tells apart, shape does too."""
_FEW_POINTS = 30
_FEW_STEPS = 3
"""Points of a line that half the height is enough for."""
_STYLE = Path(__file__).with_name("templates") / "figure.mplstyle"
_STAND_INS = {ink: f"#fe{number:02x}01" for number, ink in enumerate(plots.THEMES["light"])}
_LOCK = Lock()
"""Settings of matplotlib are those of the whole process."""
Box: TypeAlias = tuple[float, float, float, float]
"""Left, upper, right and lower edge."""


def svg_of(figure: blocks.Figure) -> str:
    """Return a figure as an `svg` element of a page, with title and description, and a title on each point."""
    file = io.BytesIO()
    with drawn(figure.drawing, _STAND_INS) as sheet:
        sheet.canvas.savefig(file, format="svg", metadata={"Date": None})
    width, height = sheet.canvas.get_size_inches() * 72
    name = figure.name
    parts = [
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="{name}-title {name}-words">',
        f'<title id="{name}-title">{escape(printable(figure.title))}</title>',
        f'<desc id="{name}-words">{escape(printable(figure.description))}</desc>',
    ]
    found = _elements(ElementTree.fromstring(file.getvalue()), sheet.titles)
    # Text comes last, as it hides nothing: so few groups share their styles.
    ordered = sorted(found, key=lambda pair: pair[0] if pair[1].startswith("<text") else "")
    for look, alike in groupby(ordered, lambda pair: pair[0]):
        parts.append(f'<g style="{look}">{"".join(element for _, element in alike)}</g>')
    return "\n".join([*parts, "</svg>"])


def write_figure(figure: blocks.Figure, path: Path, *, titled: bool = False) -> None:
    """Write a figure by the suffix of the path, one of `FILE_SUFFIXES`; title and description go into its metadata.

    Args:
        figure: A figure of a report.
        path: The file; its folder is made if missing.
        titled: Write title and caption above the drawing, for a file that stands alone.

    Raises:
        OutputError: if the file cannot be written.
    """
    words = printable(f"{figure.caption} {figure.description}".strip())
    metadata = {"Title": printable(figure.title), "Subject" if path.suffix == ".pdf" else "Description": words}
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    above = (figure.title, figure.caption) if titled else ()
    with drawn(figure.drawing, plots.THEMES["light"], *above) as sheet, files.writing(path):
        sheet.canvas.savefig(path, dpi=200, metadata=metadata | dates)


def names_fit(plot: plots.Plot) -> bool:
    """Return whether the names of all points find room beside them."""
    with drawn(plot) as sheet:
        return sheet.named == sum(bool(name) for series in plot.series for name in series.names)


def _colours(inks: Mapping[str, str]) -> dict[Any, Any]:
    """Return the inks of what matplotlib draws by itself."""
    inks_of = {"figure.facecolor": "paper", "lines.markeredgecolor": "paper", "grid.color": "rule"}
    inks_of |= dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), "muted")
    return {name: inks[ink] for name, ink in inks_of.items()}


class Sheet:
    """A canvas whose parts are placed in points, and whose height is known when all are drawn.

    Attributes:
        canvas: The figure of matplotlib.
        paper: Axes over all of it, in points, for text, legends and links.
        titles: The titles of an artist's points, by its gid.
        named: The number of points with their names beside them.
    """

    def __init__(self, inks: Mapping[str, str], width: float) -> None:
        self.inks, self.width = inks, width
        self.canvas = Canvas()
        self.paper = self.canvas.add_axes((0, 0, 1, 1), zorder=1)
        self.paper.set_axis_off()
        self.titles: dict[str, list[str]] = {}
        self.named = 0
        self.placed: dict[Axes, Box] = {}

    def text(self, x: float, y: float, text: str, ink: str = "ink", room: float = math.inf, **style: Any) -> None:
        """Write a line of text with its baseline at a place, cut to the room."""
        self.paper.text(x, y, shortened(text, room, style.get("weight", "normal")), color=self.inks[ink], **style)

    def series_ink(self, style: int) -> str:
        """Return the colour of a style."""
        return self.inks[f"series-{style % plots.SERIES + 1}"]

    def title(self, *titles: str) -> str:
        """Keep the titles of an artist's points; return the gid that the artist has to have."""
        self.titles[f"titled-{len(self.titles)}"] = list(titles)
        return f"titled-{len(self.titles) - 1}"

    def finish(self, height: float) -> None:
        """Set the height, and put all axes in their places."""
        self.canvas.set_size_inches(self.width / 72, height / 72)
        self.paper.set(xlim=(0, self.width), ylim=(height, 0))
        for axes, (left, top, right, bottom) in self.placed.items():
            size = (right - left) / self.width, (bottom - top) / height
            axes.set_position((left / self.width, 1 - bottom / height, *size))


@contextmanager
def drawn(
    drawing: plots.Drawing, inks: Mapping[str, str] = plots.THEMES["light"], title: str = "", caption: str = ""
) -> Iterator[Sheet]:
    """Draw a declared plot, below a title and a caption where they are given, to be saved within the context."""
    columns = drawing.columns if isinstance(drawing, plots.Panels) else 1
    with _LOCK, style_context([_STYLE, _colours(inks)], after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # A page is read in its reader's fonts.
        sheet = Sheet(inks, WIDTH * columns + _GAP * (columns - 1))
        top = 2.0
        for text, weight in ((title, "bold"), (caption, "normal")):
            for line in textwrap.wrap(text, int(sheet.width / 7)):
                top += 14
                sheet.text(2, top, line, weight=weight)
        sheet.finish(_draw(sheet, drawing, 0.0, top + (8 if title else 0)) + 4)
        yield sheet


def _draw(sheet: Sheet, drawing: plots.Drawing, left: float, top: float) -> float:
    """Draw at a place, `WIDTH` wide; return where it ends below."""
    found: dict[type, Callable[[Sheet, Any, float, float], float]] = {
        plots.Plot: _draw_plot, plots.Bars: _draw_bars, plots.Heat: _draw_heat, plots.Links: _draw_links,
        plots.Panels: _draw_panels,
    }  # fmt: skip
    return found[type(drawing)](sheet, drawing, left, top)


def _draw_panels(sheet: Sheet, drawing: plots.Panels, left: float, top: float) -> float:
    for start in range(0, len(drawing.panels), drawing.columns):
        ends = []
        for place, (title, panel) in enumerate(drawing.panels[start : start + drawing.columns]):
            x = left + (WIDTH + _GAP) * place
            sheet.text(x + 2, top + 14, title, room=WIDTH - 4, weight="bold")
            ends.append(_draw(sheet, panel, x, top + 20))
        top = max(ends) + _GAP
    return top


# Plots: legend, the vertical axis' label above it, grid, series, names of points.


def _draw_plot(sheet: Sheet, plot: plots.Plot, left: float, top: float) -> float:
    entries = [(series.label, _look(sheet, series)) for series in plot.series]
    axes = sheet.canvas.add_axes((0, 0, 1, 1))
    if plot.limit is not None:
        entries.append(("limit", {"color": sheet.inks["muted"], "linewidth": 1.2, "linestyle": _dash((4, 3), 1.2)}))
        axes.axvline(plot.limit, **entries[-1][1])
    top = _draw_legend(sheet, entries, left, top) if len(entries) > 1 else top
    for series, (_, look) in zip(plot.series, entries, strict=False):
        if series.points:
            _draw_series(sheet, axes, series, look, log=plot.y.log)
    axes.grid(axis="y")
    ticks = _scale(axes, "y", plot.y, 5)
    lowest = axes.get_ylim()[0]
    cut = f"begins at {lowest:.3g}" if lowest > 0 and not plot.y.log else ""
    sheet.text(left + 2, top + 11, plot.y.label, "muted", WIDTH - 12 - text_width(cut))
    if cut:
        sheet.text(left + WIDTH - 8, top + 11, cut, "muted", ha="right")
    margin = max(map(text_width, ticks), default=0.0) + 8
    most = max((len(series.points) for series in plot.series if series.mark == "line" and not series.boxes), default=0)
    height = _HEIGHT / 2 if 0 < most <= _FEW_STEPS else _HEIGHT
    box = (left + margin, top + 23, left + WIDTH - 8, top + 23 + height)
    _scale(axes, "x", plot.x, max(1, min(8, int((box[2] - box[0]) / (text_width(plots.show(axes.dataLim.x1)) + 16)))))
    sheet.placed[axes] = box
    sheet.text((box[0] + box[2]) / 2, box[3] + 32, plot.x.label, "muted", box[2] - box[0], ha="center")
    places = []
    for series in plot.series:
        found = (axes.transScale + axes.transLimits).transform(np.reshape(series.points, (-1, 2)))
        places.append([(box[0] + x * (box[2] - box[0]), box[3] - y * height) for x, y in found])
    _name_points(sheet, plot.series, places, (box[0], box[1] - 4, left + WIDTH, box[3]))
    return box[3] + 36


def _draw_series(sheet: Sheet, axes: Axes, series: plots.Series, look: Mapping[str, Any], *, log: bool) -> None:
    xs, ys = zip(*series.points, strict=True)
    if series.band:
        low, high = zip(*series.band, strict=True)
        least = min(value for value in (*ys, *low) if value > 0) if log else -math.inf
        axes.fill_between(xs, np.maximum(low, least), high, color=look["color"], alpha=0.18, linewidth=0)
    if series.boxes:
        line = {"color": look["color"], "linewidth": 1.2}
        parts = {f"{part}props": line for part in ("box", "whisker", "cap", "median")}
        axes.boxplot(list(series.boxes), positions=xs, whis=(0, 100), widths=0.5, manage_ticks=False, **parts)  # type: ignore[arg-type]
    names = series.names or [""] * len(xs)
    titles = [
        f"{name or series.label}: {plots.show(x)}, {plots.show(y)}" for x, y, name in zip(xs, ys, names, strict=False)
    ]
    gid = sheet.title(*(titles if look["marker"] != "none" else [series.label]))
    drawstyle = "steps-post" if series.mark == "steps" else "default"
    axes.plot(xs, ys, label=series.label, drawstyle=drawstyle, clip_on=False, gid=gid, **look)


def _look(sheet: Sheet, series: plots.Series) -> dict[str, Any]:
    """Return how matplotlib draws a series: colour, dash and marker."""
    few = bool(series.names) if series.mark == "steps" else len(series.points) <= _FEW_POINTS
    return {
        "color": sheet.series_ink(series.style),
        "linewidth": 2.0,
        "linestyle": "none" if series.mark == "points" else _dash(_DASHES[series.style % plots.SERIES], 2.0),
        "marker": _MARKERS[series.style % plots.SERIES] if few or series.mark == "points" else "none",
        "markersize": 11 if series.large else 7,
    }


def _draw_legend(sheet: Sheet, entries: Sequence[tuple[str, dict[str, Any]]], left: float, top: float) -> float:
    """Draw a legend from the left to the right, in as many rows as it takes; return where it ends below."""
    x, y = left + 2, top + 10
    for label, look in entries:
        width = min(28 + text_width(label), WIDTH - 4)
        if x > left + 2 and x + width > left + WIDTH - 2:
            x, y = left + 2, y + 17
        sheet.paper.plot([x, x + 11, x + 22], [y - 4] * 3, markevery=[1], **{**look, "markersize": 7})
        sheet.text(x + 28, y, label, room=WIDTH - 32)
        x += width + 14
    return y + 8


def _scale(axes: Axes, name: str, declared: plots.Axis, most: int) -> list[str]:
    """Fit an axis to what is drawn, with some room at its ends; mark round numbers, and return them."""
    axis = getattr(axes, f"{name}axis")
    low, high = axis.get_data_interval() if axes.has_data() else (0.0, 1.0)
    locator: MaxNLocator | LogLocator
    if declared.log and low > 0:
        locator = LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,))
        axes.set(**{f"{name}scale": "log"})
        low, high = low / 1.15, high * 1.15
    else:
        low = min(low, 0.0) if declared.from_zero else low
        if declared.whole and high - low < 1:
            low, high = math.floor(low) - 0.5, math.ceil(high) + 0.5
        elif low == high:
            low, high = low - abs(low or 1.0) * 0.1, high + abs(high or 1.0) * 0.1
        free = declared.room * (high - low)
        low, high = low if declared.from_zero and low == 0 else low - free, high + free
        steps = [1, 2, 5, 10] if declared.whole else [1, 2, 2.5, 5, 10]
        locator = MaxNLocator(most, steps=steps, integer=declared.whole)
    marked = [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]
    # The locator would rather mark halves than one whole number alone.
    ticks = [tick for tick in marked if tick.is_integer() or not declared.whole]
    labels = [f"{tick:,.10g}" for tick in ticks]
    axes.minorticks_off()
    axes.set(**{f"{name}lim": (low, high)})
    axis.set_ticks(ticks, labels)
    return labels


def _name_points(
    sheet: Sheet, all_series: Sequence[plots.Series], places: Sequence[Sequence[plots.Point]], inside: Box
) -> None:
    """Write names, each at the first place where it covers no symbol, step or name; others are left out."""
    taken = np.array([(0.0, 0.0, 0.0, 0.0), *_taken(all_series, places)])
    for series, points in zip(all_series, places, strict=True):
        for at, text in zip(points, series.numbers or series.names, strict=False):
            width, always = text_width(text), bool(series.numbers)
            boxes = np.array([(x, y - 9, x + width, y + 3) for x, y in _candidates(at, width, series.mark, always)])
            within = np.all(np.hstack([boxes[:, :2] >= inside[:2], boxes[:, 2:] <= inside[2:]]), axis=1)
            apart = np.any((boxes[:, None, :2] >= taken[:, 2:]) | (boxes[:, None, 2:] <= taken[:, :2]), axis=2)
            free = np.flatnonzero(within & np.all(apart, axis=1))
            if text and (always or len(free)):
                box = boxes[free[0] if len(free) else 0]
                near = (min(max(at[0], box[0]), box[2]), box[3] - 7)
                if math.dist(at, near) > 14:
                    sheet.paper.plot(*zip(at, near, strict=True), color=sheet.inks["muted"], linewidth=0.7)
                behind = {"facecolor": sheet.inks["paper"], "alpha": 0.75, "pad": 0.5, "linewidth": 0}
                sheet.text(box[0], box[3] - 3, text, bbox=behind)
                taken = np.vstack([taken, box])
                sheet.named += 1


def _candidates(at: plots.Point, width: float, mark: str, always: bool) -> Iterator[plots.Point]:
    """Yield where a name may begin, the best place first; if need be further and further away."""
    x, y = at
    if mark == "steps":  # Steps go on to the right: a name just above them is not crossed.
        yield (x + 7, y - 6)
    yield from ((x + 8, y + 4), (x - 8 - width, y + 4), (x - width / 2, y - 9), (x - width / 2, y + 17))
    for ring in range(18, 100, 9) if always else ():
        for angle in np.linspace(0, 2 * math.pi, 16, endpoint=False):
            yield (x + ring * math.cos(angle) - width / 2, y + 4 + ring * math.sin(angle))


def _taken(all_series: Sequence[plots.Series], places: Sequence[Sequence[plots.Point]]) -> Iterator[Box]:
    """Yield the boxes that no name may cover: symbols, and a front drawn in steps."""
    for series, points in zip(all_series, places, strict=True):
        if series.mark == "points" or series.names:
            yield from ((x - 5, y - 5, x + 5, y + 5) for x, y in points)
        for (x, y), (end, below) in pairwise(points if series.mark == "steps" else ()):
            yield (x, y - 1, end, y + 1)
            yield (end - 1, min(y, below), end + 1, max(y, below))


# Bars: groups one below the other, each bar with its name, its value and its deviation.


def _draw_bars(sheet: Sheet, drawing: plots.Bars, left: float, top: float) -> float:
    axes = sheet.canvas.add_axes((0, 0, 1, 1))
    bars = [bar for group in drawing.groups for bar in group.bars]
    start = left + min(180.0, max(text_width(bar.label) for bar in bars) + 10)
    end = left + WIDTH - max(text_width(bar.text) for bar in bars) - 14
    y, spans = 0.0, []
    for group in drawing.groups:
        sheet.text(left + 2, top + y + 14, group.title, room=WIDTH - 4, weight="bold")
        y += 20
        spans.append([y, y])
        for bar in group.bars:
            names = blocks.wrapped(_line(bar.label), lambda line: text_width(line) <= start - left - 8)
            at = y + 2.5 + 6 * len(names)
            for place, name in enumerate(names):
                baseline = top + at + 3.5 + 12 * (place - (len(names) - 1) / 2)
                sheet.text(start - 6, baseline, name, room=start - left - 8, ha="right")
            y += 5 + 12 * len(names)
            spans[-1][1] = y
            gid = sheet.title(f"{group.title}, {bar.label}: {bar.text}")
            axes.barh(at, bar.value, 11, color=sheet.series_ink(bar.style), gid=gid)
            sheet.text(end + 8, top + at + 3.5, bar.text)
            for ink, width in (("paper", 4), ("ink", 1.5)) if bar.ends else ():  # Seen on the bar as beside it.
                whisker: dict[str, Any] = {"color": sheet.inks[ink], "linewidth": width, "marker": "|"}
                [line] = axes.plot(bar.ends or (), [at, at], markersize=6, **whisker)
                line.set(markeredgecolor=sheet.inks[ink], markeredgewidth=width)
        y += 2
    _scale(axes, "x", plots.Axis(drawing.label, from_zero=True), 5)
    axes.set(ylim=(y, 0), yticks=[])
    axes.tick_params(length=0, bottom=False)
    for first, last in spans:  # Beside the bars of a group, not through the headings.
        axes.vlines(axes.get_xticks(), first, last, color=sheet.inks["rule"], linewidth=1, zorder=0)
        axes.vlines(0, first, last, color=sheet.inks["muted"], linewidth=1)
    sheet.placed[axes] = (start, top, end, top + y)
    sheet.text((start + end) / 2, top + y + 30, drawing.label, "muted", WIDTH - 4, ha="center")
    return top + y + 34


# Heat maps: the scale above, rows and columns named, numbers in cells that are large enough.


def _draw_heat(sheet: Sheet, heat: plots.Heat, left: float, top: float) -> float:
    rows, columns = len(heat.row_names), len(heat.column_names)
    start, upper = left + min(84.0, max(map(text_width, heat.row_names), default=0.0)) + 8, top + 44
    side = min(30.0, (left + WIDTH - 4 - start) / max(columns, 1))
    right, lower = start + side * columns, upper + side * rows
    after = left + 8 + text_width(plots.show(heat.low))
    sheet.text(left + 2, top + 12, plots.show(heat.low), "muted")
    for level in range(plots.HEAT_LEVELS + 1):
        sheet.paper.add_patch(Rectangle((after + 5 * level, top + 4), 5, 9, **_cell_look(sheet, level)))
    sheet.paper.add_patch(Rectangle((after, top + 4), 105, 9, fill=False, edgecolor=sheet.inks["rule"], linewidth=1))
    label = f"{plots.show(heat.high)}  {heat.label}"
    sheet.text(after + 111, top + 12, label, "muted", left + WIDTH - after - 113)
    sheet.text(left + 2, upper - 8, heat.row_title, "muted", WIDTH - 4)
    axes = sheet.canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, columns), ylim=(0, rows) if heat.upwards else (rows, 0))
    sheet.placed[axes] = (start, upper, right, lower)
    axes.spines[:].set(visible=True, color=sheet.inks["rule"])
    values = np.full((rows, columns), math.nan)  # Rows of a damaged record may differ in length.
    for row, found in enumerate(heat.values[:rows]):
        values[row, : len(found)] = [math.nan if value is None else value for value in found[:columns]]
    span = heat.high - heat.low if heat.high > heat.low else math.inf
    known = np.isfinite(values)
    levels = np.rint(plots.HEAT_LEVELS * np.clip((np.where(known, values, heat.low) - heat.low) / span, 0, 1)).astype(
        int
    )
    for level in np.unique(levels[levels > 0]):
        axes.add_patch(PathPatch(_cells(levels == level), label=str(level), **_cell_look(sheet, level)))
    if side >= 23 and heat.high >= 0.1:  # Two decimals of less say nothing.
        for row, column in np.argwhere(known):
            value, ink = values[row, column], sheet.inks[f"on-{levels[row, column]}"]
            text = f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.1f}"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center_baseline", fontsize=9, color=ink)
    every = max(1, math.ceil(11 / side))
    names = [shortened(name, 84) for name in heat.column_names[::every]]
    turned = max(map(text_width, names), default=0.0) > side * every
    axes.set_yticks(np.arange(rows)[::every] + 0.5, [shortened(name, 84) for name in heat.row_names[::every]])
    axes.set_xticks(np.arange(columns)[::every] + 0.5, names, rotation=90 if turned else 0)
    axes.tick_params(length=0, bottom=False)
    lower += max(map(text_width, names), default=0.0) + 20 if turned else 28
    sheet.text((start + right) / 2, lower, heat.column_title, "muted", ha="center")
    return lower + 4


def _cell_look(sheet: Sheet, level: int) -> dict[str, Any]:
    return {"facecolor": sheet.inks["heat"], "alpha": level / plots.HEAT_LEVELS, "linewidth": 0}


def _cells(chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Outline:
    """Return one outline of all chosen cells; neighbours in a row are joined."""
    edges = np.diff(np.pad(chosen.astype(int), ((0, 0), (1, 1))))
    (rows, starts), (_, ends) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    corners = np.stack([[starts, rows], [ends, rows], [ends, rows + 1], [starts, rows + 1], [starts, rows]])
    return Outline.make_compound_path(*(Outline(cell, closed=True) for cell in corners.transpose(2, 0, 1)))


# Links: teacher and student as columns, a line for each pair of layers.


def _draw_links(sheet: Sheet, links: plots.Links, left: float, top: float) -> float:
    """Draw both models from the embedding output at the bottom to the top, the student over its teacher's height.

    Layers that take part are bold.
    """
    styles = range(len(links.kinds))
    looks: list[dict[str, Any]] = [
        {"color": sheet.series_ink(style), "linewidth": 1.8, "linestyle": _dash(_DASHES[style % plots.SERIES], 1.8)}
        for style in styles
    ]
    top = _draw_legend(sheet, [(kind.label, look) for kind, look in zip(links.kinds, looks, strict=True)], left, top)
    pairs = [pair for kind in links.kinds for pair in kind.pairs]
    ends = ("student", left + WIDTH - 132, links.student), ("teacher", left + 40, links.teacher)
    columns = [
        [*range(depth + 1), *([plots.SCORES] if plots.SCORES in {pair[side] for pair in pairs} else [])]
        for side, (_, _, depth) in enumerate(ends)
    ]
    height, places = 19.0 * max(map(len, columns)), []
    for side, (owner, x, _) in enumerate(ends):
        sheet.text(x + 46, top + 13, owner, ha="center", weight="bold")
        step, used = height / len(columns[side]), {pair[side] for pair in pairs}
        places.append({layer: top + 22 + height - step * (at + 0.5) for at, layer in enumerate(columns[side])})
        for layer, y in places[side].items():
            edge, ink, width = ("ink", "ink", 1.5) if layer in used else ("rule", "muted", 1.0)
            box = Rectangle((x, y - 7.5), 92, 15, facecolor=sheet.inks["panel"], edgecolor=sheet.inks[edge], zorder=2.5)
            box.set_linewidth(width)
            sheet.paper.add_patch(box)
            name = {plots.SCORES: "scores", 0: "embedding"}.get(layer, f"layer {layer}")
            sheet.text(x + 46, y + 3.8, name, ink, 90, ha="center", weight="bold" if layer in used else "normal")
    for style, kind, look in zip(styles, links.kinds, looks, strict=True):
        crowded = {"linewidth": 0.6, "linestyle": "-", "alpha": 0.4} if len(kind.pairs) > 60 else {}
        shift = 3.0 * (style - (len(styles) - 1) / 2)
        for student, teacher in kind.pairs:
            x, end, y, below = left + 132, left + WIDTH - 132, places[1][teacher] + shift, places[0][student] + shift
            bends = [(x, y), ((x + end) / 2, y), ((x + end) / 2, below), (end, below)]
            bent = Outline(bends, [Outline.MOVETO, *[Outline.CURVE4] * 3])
            sheet.paper.add_patch(PathPatch(bent, fill=False, **{**look, **crowded}))
    return top + 24 + height


# Text and dashes.


def shortened(text: str, room: float, weight: str = "normal") -> str:
    """Cut a text in the middle so that it fits into a width; names differ at both ends."""
    text = _line(text)
    while (width := text_width(text, weight)) > room and len(text) > 3:
        most = max(3, min(len(text) - 1, int(len(text) * room / width)))
        text = f"{text[: most // 2]}…{text[len(text) - (most - 1 - most // 2) :]}"
    return text


@lru_cache(4096)
def text_width(text: str, weight: str = "normal") -> float:
    """Return the width of a line of text in the font of files; browsers' are narrower."""
    font = FontProperties(family="DejaVu Sans", size=_TEXT, weight=weight)
    return float(text_to_path.get_text_width_height_descent(_line(text), font, ismath=False)[0])


def _line(text: str) -> str:
    return " ".join(printable(text).splitlines())


def _dash(dash: Sequence[float], width: float) -> Any:
    """Return a dash in points as matplotlib takes it, which multiplies it by the width of the line."""
    return (0, [part / width for part in dash]) if dash else "-"


# The file that matplotlib writes as a fragment of a page: no ids, no references, inks by name, titles on points.

_SVG, _REFERENCE = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_INKS = tuple(_STAND_INS)


def _elements(root: ElementTree.Element, titles: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield the paths and texts of a file in order, each as its style and the element without it."""
    parts = {element.get("id"): element for element in root.iter()}
    titled: dict[ElementTree.Element, str] = {}
    for gid, words in titles.items():
        points = [*parts[gid].iter(f"{_SVG}use")] or [*parts[gid].iter(f"{_SVG}path")]
        titled |= zip(points, words, strict=False)
    defined = {path for defs in root.iter(f"{_SVG}defs") for path in defs.iter()}
    for element in root.iter():
        style = re.sub(r"#fe(..)01", lambda ink: f"var(--{_INKS[int(ink[1], 16)]})", element.get("style", ""))
        style = re.sub(r"(?:font-family|stroke-dashoffset|stroke-linejoin):[^;]*;?", "", style)
        style = re.sub(r"\s*([:;])\s*", r"\1", style).strip("; ")
        title = f"<title>{escape(printable(titled[element]))}</title>" if element in titled else ""
        kind = element.tag.removeprefix(_SVG)
        if kind == "path" and element not in defined:
            yield style, f'<path d="{_numbers(element.get("d", ""))}">{title}</path>'
        elif kind == "use":
            outline = _numbers(parts[element.get(_REFERENCE, "")[1:]].get("d", ""))
            x, y = (_numbers(element.get(name, "")) for name in "xy")
            if "C" in outline:  # The one curved marker.
                radius = outline.partition("C")[0].split()[-1]
                yield style, f'<circle cx="{x}" cy="{y}" r="{radius}">{title}</circle>'
            else:
                yield style, f'<path d="{outline}" transform="translate({x} {y})">{title}</path>'
        elif kind == "text":
            given = {name: element.get(name, "") for name in ("x", "y", "transform")}
            place = "".join(f' {name}="{_numbers(v)}"' for name, v in given.items() if v and "rotate(-0 " not in v)
            yield style, f"<text{place}>{escape(element.text or '')}</text>"


def _numbers(text: str) -> str:
    """Write coordinates with a decimal at most."""
    text = re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), text)
    return re.sub(r"\s*([MLCQz])\s*", r"\1", text).strip()
