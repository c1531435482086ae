"""Declarations of plots: series over two axes, bars, heat maps, links between layers; `plot_drawing` draws them.

A style is a number that stands for a colour, a marker and a dash; an ink is a name of the palette.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from limbeck.core import files
from limbeck.core.yaml import read_document
from limbeck.errors import OutputError, RecipeError, suggestion

Point: TypeAlias = tuple[float, float]
SCORES = -1
"""Stands for a model's scores (logits), which are above its last layer."""
_LOG_FROM = 20.0
"""How many times the least value the greatest has to be for a logarithmic scale."""


@dataclass(frozen=True)
class Axis:
    """The quantity along an axis.

    Args:
        label: The quantity, with its unit.
        log: Logarithmic, where all values are positive.
        whole: Only whole numbers are ticks.
        from_zero: The axis begins at 0.
        room: Free space at either end, as a share of the range of the values.
    """

    label: str
    log: bool = False
    whole: bool = False
    from_zero: bool = False
    room: float = 0.04


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Args:
        label: The entry of the legend.
        points: (x, y) each, finite.
        style: Colour, marker and dash.
        mark: A line through the points, the points alone, or steps from point to point.
        band: The least and the greatest value at each point, drawn as a band; empty for none.
        boxes: The values behind each point, drawn as boxes: the middle half, with whiskers to the extremes.
        names: The name of each point; written beside it where there is room.
        numbers: Written beside each point instead of its name, in any case.
        large: Drawn larger, to be seen first.
    """

    label: str
    points: Sequence[Point]
    style: int = 0
    mark: Literal["line", "points", "steps"] = "line"
    band: Sequence[Point] = ()
    boxes: Sequence[Sequence[float]] = ()
    names: Sequence[str] = ()
    numbers: Sequence[str] = ()
    large: bool = False


@dataclass(frozen=True)
class Plot:
    """Series over two axes; `limit` is a value of the horizontal one, drawn as a line."""

    series: Sequence[Series]
    x: Axis
    y: Axis
    limit: float | None = None


@dataclass(frozen=True)
class Bar:
    """A bar.

    Args:
        label: Its name.
        value: Its length.
        deviation: Of the value, where there is one.
        style: Its colour.
        text: The value as it stands beside the bar.
        interval: The ends of its 95 % interval, drawn where there is no deviation.
    """

    label: str
    value: float
    deviation: float | None
    style: int
    text: str
    interval: tuple[float, float] | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of its whisker, if it has one."""
        return self.interval if self.deviation is None else (self.value - self.deviation, self.value + self.deviation)


@dataclass(frozen=True)
class BarGroup:
    """Bars under a heading."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Bars:
    """Groups of bars over one scale that begins at 0; `label` is the quantity."""

    groups: Sequence[BarGroup]
    label: str


@dataclass(frozen=True)
class Heat:
    """A matrix as a heat map.

    Args:
        values: Rows of values; None where nothing is known.
        row_names: One a row.
        column_names: One a column.
        row_title: The quantity along the rows.
        column_title: The quantity along the columns.
        low: The value drawn as paper.
        high: The value drawn darkest (lightest on a dark page).
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


@dataclass(frozen=True)
class LinkKind:
    """Pairs of layers that the same kind of term joins.

    Args:
        label: The kind.
        pairs: (student layer, teacher layer); 0 is the embedding output, `SCORES` the head's scores.
    """

    label: str
    pairs: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Links:
    """Teacher and student as columns of layers, of these depths, and lines between the layers that terms join."""

    student: int
    teacher: int
    kinds: Sequence[LinkKind]


@dataclass(frozen=True)
class Panels:
    """Titled plots in rows of so many."""

    panels: Sequence[tuple[str, Plot | Heat]]
    columns: int


Drawing: TypeAlias = Plot | Bars | Heat | Links | Panels


def spans_widely(values: Iterable[float]) -> bool:
    """Return whether positive values span so wide a range that only a logarithmic scale shows all of it."""
    known = list(values)
    return bool(known) and min(known) > 0 and max(known) > _LOG_FROM * min(known)


def show(value: float | None) -> str:
    """Write a number with four significant digits and thousands separators; nothing as a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


# Colours in both themes, with the contrast that makes them readable.

HEAT_LEVELS = 20
SERIES = 6
"""Styles that are told apart."""


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, 1 to 21.

    Args:
        first: As `#rrggbb`.
        second: The same.

    Source:
        Web Content Accessibility Guidelines 2.2, "contrast ratio": (L1 + 0.05) / (L2 + 0.05).
    """
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def heat_colour(theme: dict[str, str], level: int) -> str:
    """Return the colour of a cell of a heat map: paper at level 0, the heat colour at `HEAT_LEVELS`."""
    share = level / HEAT_LEVELS
    channels = zip(_channels(theme["paper"]), _channels(theme["heat"]), strict=True)
    return "#" + "".join(f"{round(paper + share * (heat - paper)):02x}" for paper, heat in channels)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def _with_inks(theme: dict[str, str]) -> dict[str, str]:
    """Add the inks of numbers on a heat map: black or white, whichever reads better on the level."""
    cells = [heat_colour(theme, level) for level in range(HEAT_LEVELS + 1)]
    better = ["#000000" if contrast("#000000", cell) > contrast("#ffffff", cell) else "#ffffff" for cell in cells]
    return theme | {f"on-{level}": ink for level, ink in enumerate(better)}


_PALETTE = Path(__file__).with_name("templates") / "palette.yaml"
_INKS = read_document(_PALETTE, f"'{_PALETTE}'", "install limbeck again.")
THEMES = {
    theme: _with_inks({role: inks[place] for role, inks in _INKS.items()})
    for place, theme in enumerate(("light", "dark"))
}


# The files that figures and their data are written to.


FILE_SUFFIXES = (".png", ".svg", ".pdf")
DATA_SUFFIX = ".json"


def check_output(path: Path | None) -> None:
    """Refuse a place that could not be written, before anything is measured.

    Raises:
        RecipeError: for a file of another kind than data or a picture.
        OutputError: for a file where a folder is meant, or where nothing can be written.
    """
    if path is None:
        return
    if not path.suffix and not path.is_dir():
        if path.exists():
            raise OutputError(f"--output '{path}' is a file; give a folder, or a file that ends with .png or .json.")
    elif not path.is_dir() and path.suffix not in (DATA_SUFFIX, *FILE_SUFFIXES):
        raise RecipeError(
            f"--output '{path}' ends with '{path.suffix}', which is neither data nor a figure; give a folder, "
            "or a file."
            f"{suggestion(path.suffix, (DATA_SUFFIX, *FILE_SUFFIXES))}"
        )
    files.check_writable(path, path if path.is_dir() or not path.suffix else path.parent)
