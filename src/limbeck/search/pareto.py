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

    # The points are passed from the fastest to the slowest. One is on the front if its loss is lower than that of all
    # before it, or if it is equal to the last one of the front.
    front: list[int] = []
    lowest_loss = math.inf
    for index in sorted(numbers, key=latency_then_loss):
        loss, _ = points[index]
        is_equal_to_last = bool(front) and points[index] == points[front[-1]]
        if not front or loss < lowest_loss or is_equal_to_last:
            front.append(index)
            lowest_loss = loss
    return front
