"""Ridge regression by sums over rows, with a penalty that is chosen on rows that were not fitted.

Rows are pairs of features x, `[n, X]`, and targets y, `[n, Y]`. A regression is a linear map x W + b of features to
targets. It is fitted by sums over rows alone, so the rows need not be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_PENALTIES = tuple(10.0**power for power in range(-4, 3))
"""The penalties that are tried, in units of the mean variance of the features."""


class LinearMap(NamedTuple):
    """The map x W + b: its weight W, `[X, Y]`, and its offset b, `[Y]`."""

    weight: Tensor
    offset: Tensor


@dataclass(frozen=True)
class Moments:
    """Sums over rows, in float64: all that a linear regression needs of them.

    Attributes:
        rows: The number of rows, n.
        x: The sum of the features, `[X]`.
        y: The sum of the targets, `[Y]`.
        xx: The sum of x^T x, `[X, X]`.
        xy: The sum of x^T y, `[X, Y]`.
        yy: The sum of |y|^2, a scalar.
    """

    rows: int
    x: Tensor
    y: Tensor
    xx: Tensor
    xy: Tensor
    yy: Tensor

    @classmethod
    def of_rows(cls, features: Tensor, targets: Tensor) -> Moments:
        """Sum over rows, `[n, X]` and `[n, Y]`."""
        x = features.double().cpu()
        y = targets.double().cpu()
        return cls(rows=len(x), x=x.sum(0), y=y.sum(0), xx=x.T @ x, xy=x.T @ y, yy=y.square().sum())

    def __add__(self, other: Moments) -> Moments:
        """Add the sums over other rows."""
        return Moments(
            rows=self.rows + other.rows,
            x=self.x + other.x,
            y=self.y + other.y,
            xx=self.xx + other.xx,
            xy=self.xy + other.xy,
            yy=self.yy + other.yy,
        )

    @property
    def variance(self) -> float:
        """The mean of |y - mean y|^2 over rows."""
        return float((self.yy - self.y @ self.y / self.rows) / self.rows)

    def regressions(self, penalties: Sequence[float], *, offset: bool) -> Iterator[LinearMap]:
        """Yield the ridge regression of y on x for each penalty.

        W = (C + p I)^-1 D, with the covariances C of x with itself and D of x with y, and b = mean y - mean x W.

        Args:
            penalties: The values of p, in units of the mean diagonal of C.
            offset: Whether there is an offset; otherwise b is 0, and x and y are not centred.
        """
        mean_x = torch.zeros_like(self.x)
        mean_y = torch.zeros_like(self.y)
        if offset:
            mean_x = self.x / self.rows
            mean_y = self.y / self.rows
        covariance = self.xx - self.rows * torch.outer(mean_x, mean_x)
        covariance_with_y = self.xy - self.rows * torch.outer(mean_x, mean_y)

        # One decomposition serves all penalties: a penalty adds the same to every eigenvalue.
        eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
        projected = eigenvectors.T @ covariance_with_y
        unit = covariance.diagonal().mean()
        for penalty in penalties:
            raised = eigenvalues + unit * penalty
            # If all vectors are alike, the covariance is 0 and has no inverse. As in a pseudo-inverse, eigenvalues that
            # are 0 up to rounding get the inverse 0.
            rounding = len(raised) * torch.finfo(raised.dtype).eps * raised.max()
            inverse = torch.where(raised > rounding, 1 / raised, 0.0)
            weight = eigenvectors @ (inverse[:, None] * projected)
            yield LinearMap(weight, mean_y - mean_x @ weight)

    def error(self, regression: LinearMap) -> float:
        """Return the mean of |x W + b - y|^2 over rows."""
        weight, offset = regression
        # |x W + b - y|^2 is multiplied out, and each term is summed over rows by the moments:
        # |x W|^2 + |b|^2 + |y|^2 + 2 (x W · b - x W · y - y · b).
        squares = (self.xx @ weight * weight).sum() + self.rows * offset @ offset + self.yy
        products = (self.x @ weight) @ offset - (self.xy * weight).sum() - self.y @ offset
        return float((squares + 2 * products) / self.rows)


def regression_error(fitted: Moments, choosing: Moments, measured: Moments, *, offset: bool = True) -> float:
    """Return the mean squared error of a ridge regression on rows that it was not fitted on, summed over the targets.

    Args:
        fitted: Rows on which a regression is fitted for each penalty.
        choosing: Rows on which the penalty with the smallest error is chosen. The regression with this penalty is then
            fitted again, on `fitted` and `choosing` together.
        measured: Rows on which the error is measured.
        offset: Whether the regression has an offset.
    """
    candidates = fitted.regressions(_PENALTIES, offset=offset)
    errors = [choosing.error(candidate) for candidate in candidates]
    best_penalty = _PENALTIES[errors.index(min(errors))]

    [best_regression] = (fitted + choosing).regressions([best_penalty], offset=offset)
    return measured.error(best_regression)
