"""Ridge regression by sums over rows, with a penalty that is chosen on rows that were not fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_PENALTIES = tuple(10.0**power for power in range(-4, 3))
"""Candidates, in units of the mean variance of the features."""


class Moments:
    """Sums over rows x `[n, X]` and y `[n, Y]`, in float64: all that a linear regression needs of them."""

    def __init__(self) -> None:
        self._rows = 0
        # Sums of x, y, x^T x, x^T y and y^2; empty before the first rows.
        self._sums: tuple[Tensor, ...] = ()

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add rows."""
        x = x.double().cpu()
        y = y.double().cpu()
        sums: tuple[Tensor, ...] = (x.sum(0), y.sum(0), x.T @ x, x.T @ y, y.square().sum())
        if self._sums:
            sums = _add_each(self._sums, sums)
        self._rows += len(x)
        self._sums = sums

    def __add__(self, other: Moments) -> Moments:
        joined = Moments()
        joined._rows = self._rows + other._rows
        joined._sums = _add_each(self._sums, other._sums)
        return joined

    def regressions(self, penalties: Sequence[float], *, offset: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Return weight `[X, Y]` and offset `[Y]` of the ridge regression of y on x for each penalty.

        Args:
            penalties: In units of the mean diagonal of the covariance.
            offset: Whether there is one; otherwise it is 0, and x and y are not centred.
        """
        sum_x, sum_y, xx, xy, _ = self._sums
        mean_x = torch.zeros_like(sum_x)
        mean_y = torch.zeros_like(sum_y)
        if offset:
            mean_x = sum_x / self._rows
            mean_y = sum_y / self._rows
        covariance = xx - self._rows * torch.outer(mean_x, mean_x)
        eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
        projected = eigenvectors.T @ (xy - self._rows * torch.outer(mean_x, mean_y))
        for penalty in penalties:
            raised = eigenvalues + covariance.diagonal().mean() * penalty
            # A pseudo-inverse, since vectors that are all alike have no covariance.
            is_invertible = raised > len(raised) * torch.finfo(raised.dtype).eps * raised.max()
            inverse = torch.where(is_invertible, 1 / raised, 0.0)
            weight = eigenvectors @ (inverse[:, None] * projected)
            yield weight, mean_y - mean_x @ weight

    def error(self, weight: Tensor, offset: Tensor) -> float:
        """Return |x W + b - y|^2, the mean over rows."""
        sum_x, sum_y, xx, xy, yy = self._sums
        # The square is multiplied out, so that the rows need not be kept.
        error = ((xx @ weight) * weight).sum() + self._rows * offset @ offset + yy
        error += 2 * (sum_x @ weight) @ offset - 2 * (xy * weight).sum() - 2 * sum_y @ offset
        return float(error / self._rows)

    @property
    def variance(self) -> float:
        """The mean of |y - mean y|^2 over rows."""
        _, sum_y, _, _, yy = self._sums
        return float((yy - sum_y @ sum_y / self._rows) / self._rows)


def _add_each(first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def regression_error(fitted: Moments, choosing: Moments, measured: Moments, *, offset: bool = True) -> float:
    """Return the squared error of a row that was not fitted, summed over y.

    Args:
        fitted: Rows that each penalty's regression is fitted on.
        choosing: Rows on which the penalty is chosen; the regression is then fitted on these too.
        measured: Rows that the error is of.
        offset: Whether the regression has an offset.
    """
    errors: dict[float, float] = {}
    for penalty, regression in zip(_PENALTIES, fitted.regressions(_PENALTIES, offset=offset), strict=True):
        errors[penalty] = choosing.error(*regression)
    best_penalty = min(errors, key=lambda penalty: errors[penalty])
    [regression] = (fitted + choosing).regressions([best_penalty], offset=offset)
    return measured.error(*regression)
