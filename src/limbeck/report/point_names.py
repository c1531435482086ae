"""The names of points on a plot, each beside its point, so that no name touches another name or a point."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

_STRAIGHT = ((1, 0), (-1, 0), (0, 1), (0, -1))
_SLANTED = ((0.7, 0.7), (-0.7, 0.7), (0.7, -0.7), (-0.7, -0.7), (0.4, 0.9), (-0.4, 0.9), (0.4, -0.9), (-0.4, -0.9))
_OFFSETS = tuple(
    (distance * across, distance * upwards)
    for distance in (8, 18, 30, 44, 60, 80, 105)
    for across, upwards in (*_STRAIGHT, *_SLANTED)
)
"""Offsets from a point to its name in typographic points, the preferred first: near, and to the right."""
_FONT_SIZE = 8
_POINTS_PER_INCH = 72
"""Typographic points in an inch."""
_FARTHEST_WITHOUT_LINE = 10
"""Largest distance at which it is clear whose a name is; a name further off is joined to its point by a line."""
_POINT_RADIUS = 4
"""Room of a point, in typographic points from its middle."""
_PADDING = 2
"""Room around a name, in typographic points."""
_LINE_COLOUR = "#7c8591"


def place_names(axes: Axes, names: Sequence[str], points: Sequence[tuple[float, float]]) -> None:
    """Write the name of each point in the first free place beside it; a name without a free place is left out.

    The limits of the axes must not change afterwards.

    Args:
        axes: Where all points and lines are drawn already; lines are upright or level.
        names: The names, in the order of the points.
        points: The points as (x, y), in units of the axes.
    """
    sheet = axes.get_figure(root=True)
    assert sheet is not None
    # The places of points on the sheet are known once its layout has been computed.
    sheet.draw_without_rendering()
    pixels_per_point = sheet.dpi / _POINTS_PER_INCH
    plot_area = axes.get_window_extent()

    # The boxes, in pixels, that a name must not touch: those of points, of lines, and of names that have a place.
    radius = _POINT_RADIUS * pixels_per_point
    padding = _PADDING * pixels_per_point
    taken_boxes = [_box_around(place, radius) for place in axes.transData.transform(list(points))]
    for line in axes.get_lines():
        taken_boxes += _boxes_along(line.get_transform().transform(line.get_xydata()), padding)

    # A name that lies on a line of the grid is harder to read, but easier to find than one that is far from its point.
    grid_boxes: list[Bbox] = []
    for line in axes.yaxis.get_gridlines():
        grid_boxes += _boxes_along(line.get_transform().transform(line.get_xydata()), 0.0)
    tries = [(offset, grid_boxes) for offset in _OFFSETS if math.hypot(*offset) <= _FARTHEST_WITHOUT_LINE]
    tries += [(offset, []) for offset in _OFFSETS]

    for name, point in zip(names, points, strict=True):
        # The name is written at one offset after the other, until it is at a free place.
        for offset, other_boxes in tries:
            annotation = _write_name(axes, name, point, offset)
            box = annotation.get_window_extent().padded(padding)
            touches_another = any(box.overlaps(taken_box) for taken_box in [*taken_boxes, *other_boxes])
            if _is_inside(box, plot_area) and not touches_another:
                taken_boxes.append(box)
                _join_if_far(axes, point, offset)
                break
            annotation.remove()


def _is_inside(box: Bbox, area: Bbox) -> bool:
    """Return whether a box lies within an area."""
    is_inside_across = area.x0 <= box.x0 and box.x1 <= area.x1
    is_inside_upwards = area.y0 <= box.y0 and box.y1 <= area.y1
    return is_inside_across and is_inside_upwards


def _write_name(axes: Axes, name: str, point: tuple[float, float], offset: tuple[float, float]) -> Annotation:
    """Write the name of a point so that its nearest side or corner has an offset from the point."""
    across, upwards = offset
    annotation = axes.annotate(
        name,
        point,
        xytext=offset,
        textcoords="offset points",
        ha=_near_side(across, "left", "right"),
        va=_near_side(upwards, "bottom", "top"),
        fontsize=_FONT_SIZE,
    )
    # The layout of the sheet was computed without names, and must not make room for them now.
    annotation.set_in_layout(False)
    return annotation


def _near_side(offset: float, positive: str, negative: str) -> str:
    """Return the side of a name that is towards its point: the middle where the name has no offset this way."""
    if offset > 0:
        return positive
    if offset < 0:
        return negative
    return "center"


def _join_if_far(axes: Axes, point: tuple[float, float], offset: tuple[float, float]) -> None:
    """Draw a line from a point to its name, unless the name is so near that it is clear whose it is."""
    if math.hypot(*offset) <= _FARTHEST_WITHOUT_LINE:
        return
    # For matplotlib, a line from a point to a place beside it is an arrow without a head, of a note without text.
    look = {"arrowstyle": "-", "color": _LINE_COLOUR, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3}
    line = axes.annotate("", point, xytext=offset, textcoords="offset points", arrowprops=look)
    line.set_in_layout(False)


def _box_around(place: Sequence[float], radius: float) -> Bbox:
    x, y = place
    return Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)


def _boxes_along(places: NDArray[np.float64], radius: float) -> Iterator[Bbox]:
    """Yield the boxes of the parts of a line, each of which is upright or level."""
    for (x, y), (next_x, next_y) in pairwise(places):
        low_x, high_x = sorted((x, next_x))
        low_y, high_y = sorted((y, next_y))
        yield Bbox.from_extents(low_x - radius, low_y - radius, high_x + radius, high_y + radius)
