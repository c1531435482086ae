"""Watching the terms for values that are not finite, without a host sync in every step."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.errors import TrainingError


class FiniteGuard:
    """Collects the terms of each step on the device and looks at them when asked.

    Args:
        names: Names of the terms.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._steps: list[int] = []
        self._values: list[Tensor] = []

    def note(self, step: int, terms: dict[str, Tensor]) -> None:
        """Remember the terms of one micro-batch of a step; on a CPU, where it costs nothing, look at once.

        Raises:
            TrainingError: see `check`.
        """
        self._steps.append(step)
        self._values.append(torch.stack([terms[name].float() for name in self._names]))
        if self._values[-1].device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Look at what was collected since the last look.

        Raises:
            TrainingError: at the first term that is not finite, with its name, value and step.
        """
        if not self._values:
            return
        values = torch.stack(self._values).cpu()
        steps, self._steps, self._values = self._steps, [], []
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise TrainingError(
                f"The loss term '{self._names[column]}' became {values[row, column].item()} at step {steps[row]}; "
                "the run stopped and saved nothing after it. Lower the stage's training.learning_rate or raise its "
                "training.warmup_steps, and start again with --overwrite, or in another folder to keep what was saved."
            )
