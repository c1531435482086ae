"""How far a cell is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

Share: TypeAlias = Callable[[float], None]
"""Is told which share of a cell is done, 0 to 1."""

TRAINING_SHARE = 0.95
"""The rest of a cell is scoring."""


class StepReporter(TrainerCallback):
    """Tells how many steps of the training are done.

    Args:
        report: Is told.
    """

    def __init__(self, report: Share) -> None:
        self._report = report

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell it."""
        self._report(TRAINING_SHARE * state.global_step / max(state.max_steps, 1))
