"""Rows drawn of a split at random: the same for every model and every seed of an evaluation."""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
DRAW = 0
"""Seed of the draw. It is no seed of an evaluation, so that all of its seeds see the same rows."""


def draw(items: Sequence[Item], most: int | None) -> Sequence[Item]:
    """Return at most a number of items, drawn once for all and in their own order.

    Args:
        items: The items.
        most: Largest number of them; None for all.
    """
    if most is None or len(items) <= most:
        return items
    places = random.Random(DRAW).sample(range(len(items)), most)
    return [items[place] for place in sorted(places)]
