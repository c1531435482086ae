"""Judging a step by its terms, its loss and its gradient, on the device that computed them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WINDOW = 64
"""Good steps whose losses a new one is compared with."""
_ENOUGH = 16  # Before that the median says little.


@dataclass(frozen=True)
class Findings:
    """What a step came to, read on the host.

    Args:
        bad: Whether the step is no use.
        loss: Its loss.
        median: Of the losses before it; no number while there are too few, or without a bound on the loss.
        norm: Norm of its gradient.
        terms: Its terms.
    """

    bad: bool
    loss: float
    median: float
    norm: float
    terms: list[float]

    @classmethod
    def read(cls, values: Tensor) -> Findings:
        """Read what `LossJudge.judge` returned."""
        bad, loss, median, norm, *terms = values.tolist()
        return cls(bool(bad), loss, median, norm, terms)


class LossJudge:
    """Remembers the losses of the last good steps; all of it stays on the device, so that no step waits.

    Args:
        weights: Weight of every term in the loss.
        factor: A loss above so many times the running median is bad; None for no bound.
        device: Where the terms are.
    """

    def __init__(self, weights: list[float], factor: float | None, device: torch.device) -> None:
        self._weights = torch.tensor(weights, dtype=torch.float64, device=device)
        self._factor = factor
        self._losses = torch.full((WINDOW,), torch.nan, dtype=torch.float64, device=device)
        self._good = torch.zeros((), dtype=torch.int64, device=device)

    def judge(self, terms: Tensor, norm: Tensor) -> Tensor:
        """Judge a step, and remember its loss if it is good.

        Args:
            terms: `[terms]`, of the whole step.
            norm: Norm of the gradient, scalar; 0 where it is not to be judged.

        Returns:
            Float64 `[4 + terms]`, see `Findings`; the first is 1 for a bad step and 0 for a good one.
        """
        terms, norm = terms.double(), norm.double()
        loss = (self._weights * terms).sum()
        bad = ~(terms.isfinite().all() & norm.isfinite())
        median = torch.full_like(loss, torch.nan)
        if self._factor is not None:
            median = torch.where(self._good >= _ENOUGH, self._losses.nanmedian(), median)
            bad = bad | (loss > self._factor * median)
            here = torch.arange(WINDOW, device=loss.device) == self._good % WINDOW
            self._losses = torch.where(here & ~bad, loss, self._losses)
            self._good = self._good + (~bad).long()
        return torch.cat([torch.stack([bad.double(), loss, median, norm]), terms])

    def state(self) -> dict[str, object]:
        """What a resumed run needs, as JSON has it; None stands for no loss."""
        losses = [None if value != value else value for value in self._losses.tolist()]
        return {"losses": losses, "good": int(self._good)}

    def load(self, state: dict[str, object]) -> None:
        """Take up what `state` gave."""
        losses = [torch.nan if value is None else value for value in state["losses"]]  # type: ignore[attr-defined]
        self._losses = torch.tensor(losses, dtype=torch.float64, device=self._losses.device)
        self._good = torch.tensor(state["good"], dtype=torch.int64, device=self._good.device)
