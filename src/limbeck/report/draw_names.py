"""Names beside points: each where it hides nothing, or as a number that always finds a place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from limbeck.report.marks import SMALL_TEXT, Label, Mark, Point, Stroke, text_width

Box: TypeAlias = tuple[float, float, float, float]
"""Left, upper, right and lower edge."""
_RINGS, _DIRECTIONS, _APART = 9, 16, 9.0
_NEAR = 14.0
"""A name further away than this is joined with its point by a line."""


@dataclass(frozen=True)
class NamedPoint:
    """A point that is named.

    Args:
        at: Where it is.
        name: What is written.
        above: Written above rather than beside it.
        always: Written in any case, if need be further away with a line to the point.
    """

    at: Point
    name: str
    above: bool = False
    always: bool = False


def name_points(points: Iterable[NamedPoint], taken: Iterable[Box], inside: Box) -> Iterator[Mark]:
    """Write names, each at the first place where it hides nothing; where there is none it is left out.

    Args:
        points: What is named.
        taken: What is not to be covered.
        inside: Where names have to stay.
    """
    covered = list(taken)
    for point in points:
        width = text_width(point.name, SMALL_TEXT)
        places = list(_places(point, width))
        free = [at for at in places if _is_free(_box(at, width), covered, inside)]
        if not free and not point.always:
            continue
        x, y = free[0] if free else places[0]
        covered.append(_box((x, y), width))
        near_x, near_y = min(max(point.at[0], x), x + width), y - 4
        if math.dist(point.at, (near_x, near_y)) > _NEAR:
            yield Stroke((point.at, (near_x, near_y)), "muted", 0.7)
        yield Label(x, y, point.name, size=SMALL_TEXT, halo=True)


def _places(point: NamedPoint, width: float) -> Iterator[Point]:
    """Where a name may begin, the best place first."""
    x, y = point.at
    if point.above:
        yield (x + 7, y - 6)
    yield from ((x + 8, y + 4), (x - 8 - width, y + 4), (x - width / 2, y - 9), (x - width / 2, y + 17))
    if not point.always:
        return
    for ring in range(2, _RINGS + 2):
        for turn in range(_DIRECTIONS):
            angle = 2 * math.pi * turn / _DIRECTIONS
            yield (x + ring * _APART * math.cos(angle) - width / 2, y + 4 + ring * _APART * math.sin(angle))


def _box(at: Point, width: float) -> Box:
    return (at[0], at[1] - 9, at[0] + width, at[1] + 3)


def _is_free(box: Box, taken: Sequence[Box], inside: Box) -> bool:
    within = box[0] >= inside[0] and box[2] <= inside[2] and box[1] >= inside[1] and box[3] <= inside[3]
    return within and not any(_overlap(box, other) for other in taken)


def _overlap(first: Box, second: Box) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]
