"""Rows drawn of a split: the same for every model and every seed."""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
DRAW = 0
"""Seed of the draw: the same for every cell, so that all seeds see the same rows."""


def draw(items: Sequence[Item], most: int | None) -> Sequence[Item]:
    """Return at most a number of items, drawn once for all and in their own order.

    Args:
        items: The items.
        most: Their number; None for all.
    """
    if most is None or len(items) <= most:
        return items
    chosen = random.Random(DRAW).sample(range(len(items)), most)
    return [items[index] for index in sorted(chosen)]
