"""The parts of pictures: a file that says what it shows, lines by layer, heat maps with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from limbeck.errors import OutputError

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
COLOUR_MAP = "Blues"  # white is nothing; dark in grey too
_LINE_STYLES = (("#1b4f8a", "o", "-"), ("#c8551b", "s", "--"))  # told apart in grey and by the colour-blind
_NUMBERED_CELLS = 200
_DOTS_PER_INCH = 150


@dataclass(frozen=True)
class Picture:
    """A picture, and what it shows in words.

    Args:
        figure: What to draw.
        title: One line.
        description: What a reader who cannot see it needs to know; saved with it.
    """

    figure: Figure
    title: str
    description: str


@dataclass(frozen=True)
class Line:
    """A model's values by layer.

    Args:
        label: The model.
        first: The layer of the first value.
        values: One a layer.
        deviations: Around the values; empty where there are none.
    """

    label: str
    first: int
    values: Sequence[float]
    deviations: Sequence[float] = ()

    def describe(self, pick: Callable[[Iterable[float]], float]) -> str:
        """Say in words what the values are, and which one `pick` (`max` or `min`) stands out."""
        found = pick(self.values)
        layer = self.first + list(self.values).index(found)
        all_values = ", ".join(f"{value:.2f}" for value in self.values)
        return f"{self.label}: {all_values} from layer {self.first} on; {pick.__name__} {found:.2f} at layer {layer}"


def save_picture(picture: Picture, path: Path) -> None:
    """Write a picture as `.png`, `.svg` or `.pdf`, by the suffix, with its title and description in the metadata.

    Raises:
        OutputError: if the file cannot be written.
    """
    described = "Subject" if path.suffix == ".pdf" else "Description"
    metadata = {"Title": picture.title, described: picture.description}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=metadata, facecolor="white")
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror}.") from error


def short_name(name: str) -> str:
    """Return a model's name as a picture has room for it: a folder by its last two parts, a package by its name."""
    parts = name.removeprefix("package:").rstrip("/").split("/")
    return "/".join(part for part in parts[-2:] if part not in ("", ".", ".."))


def draw_lines(lines: Sequence[Line], *, title: str, label: str) -> Figure:
    """Draw one or two lines over the number of the layer."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for line, (colour, marker, style) in zip(lines, _LINE_STYLES, strict=False):
        layers = np.arange(line.first, line.first + len(line.values))
        middle = np.array(line.values)
        axes.plot(layers, middle, color=colour, marker=marker, linestyle=style, label=line.label)
        if line.deviations:
            spread = np.array(line.deviations)
            axes.fill_between(layers, middle - spread, middle + spread, color=colour, alpha=0.2, linewidth=0)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("layer (0: embedding output)" if lines[0].first == 0 else "layer")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    return figure


def heat_figure(rows: int, columns: int) -> Figure:
    """Return an empty figure with room for a heat map of so many cells."""
    return Figure(figsize=(max(5.0, 0.46 * columns + 2.6), max(3.4, 0.4 * rows + 1.8)), layout="constrained")


def draw_heat(axes: Axes, values: NDArray[np.float64], scale: Normalize) -> AxesImage:
    """Draw a matrix, its first row at the bottom, with its numbers where there is room; undefined cells stay white."""
    image = axes.imshow(values, cmap=COLOUR_MAP, norm=scale, origin="lower", aspect="auto", interpolation="nearest")
    if values.size <= _NUMBERED_CELLS:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                ink = "white" if scale(value) > 0.6 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=7)
    return image


def label_cells(axes: Axes, columns: Sequence[object], rows: Sequence[object]) -> None:
    """Name the columns and rows of a heat map."""
    axes.set_xticks(range(len(columns)), [str(name) for name in columns], fontsize=8)
    axes.set_yticks(range(len(rows)), [str(name) for name in rows], fontsize=8)
