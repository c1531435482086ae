"""A drawing as a picture for a paper, by matplotlib, in the colours of the light theme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Circle, PathPatch, Polygon
from matplotlib.path import Path as Outline
from matplotlib.patheffects import withStroke

from limbeck.report.content import Figure
from limbeck.report.drawing import Picture, save_picture
from limbeck.report.marks import WIDTH, Area, Cells, Label, Mark, Marker, Stroke
from limbeck.report.palette import LIGHT, heat_colour, ink_on_heat

_INCHES = 5.2
_POINTS = 72 * _INCHES / WIDTH
"""Points of a unit."""
_ALIGNMENT = {"start": "left", "middle": "center", "end": "right"}
SUFFIXES = (".svg", ".png")


def write_pictures(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as SVG and as PNG.

    Returns:
        The files.

    Raises:
        OutputError: if a file cannot be written.
    """
    picture = draw_picture(figure)
    paths = [folder / f"{figure.name}{suffix}" for suffix in SUFFIXES]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name, "text.parse_math": False}):
        for path in paths:
            save_picture(picture, path)
    return paths


def draw_picture(figure: Figure) -> Picture:
    """Draw the marks of a figure on white, in their own units."""
    drawing = figure.drawing
    drawn = MatplotlibFigure(figsize=(_INCHES, _INCHES * drawing.height / WIDTH))
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set_xlim(-4, WIDTH + 4)
    axes.set_ylim(drawing.height + 4, -4)
    axes.set_axis_off()
    for order, mark in enumerate(drawing.marks):
        _draw(axes, mark, order)
    return Picture(drawn, figure.title, figure.description)


def _draw(axes: Axes, mark: Mark, order: int) -> None:
    match mark:
        case Stroke():
            # matplotlib multiplies dashes by the width of the line.
            dash = (0, tuple(part / mark.width for part in mark.dash)) if mark.dash else "solid"
            axes.add_patch(
                PathPatch(
                    _outline(mark),
                    fill=False,
                    edgecolor=LIGHT[mark.ink],
                    linewidth=mark.width * _POINTS,
                    linestyle=dash,
                    alpha=mark.opacity,
                    zorder=order,
                )
            )
        case Area():
            axes.add_patch(Polygon(mark.points, color=LIGHT[mark.ink], alpha=mark.opacity, linewidth=0, zorder=order))
        case Cells():
            corners = [
                [(x, y), (x + width, y), (x + width, y + height), (x, y + height)] for x, y, width, height in mark.boxes
            ]
            colour = heat_colour(LIGHT, mark.level)
            axes.add_collection(
                PolyCollection(corners, facecolor=colour, edgecolor="none", zorder=order), autolim=False
            )
        case Marker():
            style: dict[str, Any] = {
                "facecolor": LIGHT["paper"] if mark.hollow else LIGHT[mark.ink],
                "edgecolor": LIGHT[mark.ink] if mark.hollow else LIGHT["paper"],
                "linewidth": 0.8 * _POINTS,
                "zorder": order,
            }
            outline = mark.outline
            axes.add_patch(Polygon(outline, **style) if outline else Circle((mark.x, mark.y), mark.size, **style))
        case Label():
            axes.text(
                mark.x, mark.y, mark.text, ha=_ALIGNMENT[mark.anchor], va="baseline", rotation=90 if mark.turned else 0,
                rotation_mode="anchor", fontsize=mark.size * _POINTS, fontweight="bold" if mark.bold else "normal",
                color=LIGHT[mark.ink] if mark.level is None else ink_on_heat(LIGHT, mark.level), zorder=order,
                path_effects=[withStroke(linewidth=3 * _POINTS, foreground=LIGHT["paper"])] if mark.halo else None,
            )  # fmt: skip


def _outline(stroke: Stroke) -> Outline:
    if not stroke.bent:
        return Outline(stroke.points)
    (x, y), (end_x, end_y) = stroke.points
    middle = (x + end_x) / 2
    codes = (Outline.MOVETO, Outline.CURVE4, Outline.CURVE4, Outline.CURVE4)
    return Outline([(x, y), (middle, y), (middle, end_y), (end_x, end_y)], codes)
