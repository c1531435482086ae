"""Limits of a student's shape, and what is said of one that is beyond them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from limbeck.errors import RecipeError
from limbeck.search.shape_space import KnownShape

_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmb]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def parse_count(option: str, text: str) -> int:
    """Read a number of parameters such as `30M`, `1.5b` or `30000000`.

    Args:
        option: What the number is of, for the message.
        text: The number.

    Raises:
        RecipeError: for anything else, and for 0.
    """
    found = _COUNT.fullmatch(text.strip())
    # More than twenty digits are no number of parameters, and may be more than a float holds.
    count = 0 if found is None or len(found[1]) > 20 else round(float(found[1]) * _FACTORS[found[2].lower()])
    if count < 1:
        raise RecipeError(f"{option} '{text[:80]}' is no number of parameters; write it like 30M, 1.5B or 30000000.")
    return count


def written_count(count: int) -> str:
    """Write a number of parameters as `parse_count` reads it, to three digits: `23.4M`."""
    for letter, factor in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= factor:
            value = count / factor
            return f"{value:.{max(0, 2 - int(math.log10(value)))}f}{letter}"
    return str(count)


@dataclass(frozen=True)
class ShapeLimits:
    """What a student may be at most.

    Args:
        parameters: Parameters of its encoder; None for any number.
        latency_share: Its latency as a share of its teacher's; None for any.
    """

    parameters: int | None = None
    latency_share: float | None = None

    def refuse_parameters(self, shape: KnownShape) -> str | None:
        """Return why a shape is too large, or None."""
        if self.parameters is None or shape.parameters <= self.parameters:
            return None
        return f"{shape.parameters:,} parameters, {self.parameters:,} are the limit"

    def refuse_latency(self, share: float) -> str | None:
        """Return why a shape is too slow, or None."""
        if self.latency_share is None or share <= self.latency_share:
            return None
        return f"{share:.3f} of the teacher's latency, {self.latency_share:g} is the limit"


def check_some_small_enough(limits: ShapeLimits, shapes: Iterable[KnownShape]) -> None:
    """Refuse a limit of parameters that no shape meets.

    Raises:
        RecipeError: naming the smallest shape.
    """
    smallest = min(shapes, key=lambda shape: shape.parameters)
    if limits.refuse_parameters(smallest):
        raise RecipeError(
            f"No shape has at most {limits.parameters:,} parameters: the smallest, {smallest.point}, has "
            f"{smallest.parameters:,}; raise --max-parameters to {written_count(smallest.parameters)}, or list smaller "
            "sizes."
        )


def fastest_guess(shapes: Iterable[KnownShape]) -> KnownShape:
    """Return the shape that is least likely to be too slow: the shallowest, then the narrowest."""
    return min(shapes, key=lambda shape: (shape.point.layers, shape.point.hidden, shape.point.ffn, shape.point.heads))
