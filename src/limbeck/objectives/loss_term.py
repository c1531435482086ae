"""`LossTerm`: what every objective returns, a sum and the count it is a sum over."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LossTerm:
    """A summed loss and the number of items it sums over.

    Only the trainer divides, so that a batch split over micro-batches or ranks gives the gradient of the
    whole.

    Args:
        total: Sum over the counted items, a float32 (or float64) scalar that carries the gradient.
        count: Number of items, a scalar of the same kind without gradient; 0 when nothing is valid.
    """

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """`total / count`, and 0 when nothing was counted."""
        return self.total / self.count.clamp(min=1)

    def __add__(self, other: LossTerm) -> LossTerm:
        return LossTerm(self.total + other.total, self.count + other.count)
