"""The Pareto front of points: what searches choose from, and what reports draw."""

import math
from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that no other point beats, the fastest first.

    A point beats another if it is no worse in both values, and better in one. Equal points are either all on the front
    or all off it. A point with a value that is not a number is never on it.

    Args:
        points: (loss, latency) of each student; less is better of both.
    """
    numbers = []
    for index, (loss, latency) in enumerate(points):
        if not math.isnan(loss) and not math.isnan(latency):
            numbers.append(index)

    def latency_then_loss(index: int) -> tuple[float, float]:
        loss, latency = points[index]
        return latency, loss

    # From the fastest to the slowest, a point is on the front if its loss is lower than that of all before it.
    front: list[int] = []
    for index in sorted(numbers, key=latency_then_loss):
        if not front:
            front.append(index)
            continue
        # The last point of the front has the lowest loss so far.
        last = points[front[-1]]
        loss, _ = points[index]
        lowest_loss, _ = last
        if loss < lowest_loss or points[index] == last:
            front.append(index)
    return front
