"""The Pareto front of points: what searches choose from, and what reports draw."""

import math
from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other beats, the fastest first.

    A point is beaten by one that is no worse in both and better in one. Equal points are all on the front or all off
    it. Points with a value that is not a number are never on it.

    Args:
        points: (loss, latency) of each student; less is better of both.
    """
    by_latency = sorted(
        (index for index, point in enumerate(points) if not any(math.isnan(value) for value in point)),
        key=lambda index: (points[index][1], points[index][0]),
    )
    front: list[int] = []
    for index in by_latency:
        if not front or points[index][0] < points[front[-1]][0] or points[index] == points[front[-1]]:
            front.append(index)
    return front
