"""`TimedCheckpoints`: a checkpoint every few minutes, so that slow steps are not lost either.

A stage saves a checkpoint every 500 steps, which may take hours on a CPU.
"""

import time
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core.ranks import broadcast
from limbeck.recipe.training_fields import DEFAULTS

MINUTES = 5.0
"""Minutes of training between two checkpoints, about."""
_SECONDS_BETWEEN_LOOKS = 15.0
"""Seconds between two looks at the clock, about; each look is an exchange of the processes, where there are several."""


def saves_by_time(training: Mapping[str, Any]) -> bool:
    """Return whether a stage saves by time too: it does unless its recipe says when to save.

    Args:
        training: The training arguments as the recipe has them.
    """
    is_left_to_limbeck = "save_steps" not in training and "save_strategy" not in training
    # Without a limit every checkpoint is kept, and the recipe means those of its steps alone.
    keeps_all = training.get("save_total_limit", DEFAULTS["save_total_limit"]) is None
    return is_left_to_limbeck and not keeps_all


class TimedCheckpoints(TrainerCallback):
    """Asks for a checkpoint once `MINUTES` have passed since the last one.

    All processes go by the clock of the main process, so that they save at the same step. They look at it after a
    number of steps that follows from the pace since the look before, and no other step waits for an exchange.
    """

    def __init__(self) -> None:
        # The time of the last checkpoint, or of the begin of the training.
        self._saved_at = 0.0
        # The step and the time of the last look, and the step of the next one.
        self._looked_step = 0
        self._looked_at = 0.0
        self._next_look = 1

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the time from here."""
        self._saved_at = time.monotonic()
        self._looked_step = state.global_step
        self._looked_at = self._saved_at
        self._next_look = state.global_step + 1

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the time from this checkpoint, whatever asked for it."""
        self._saved_at = time.monotonic()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint if one is due, as far as this step has a look at the clock."""
        step = state.global_step
        if step < self._next_look:
            return
        now = time.monotonic()
        is_due, steps_until_next_look = broadcast((self._is_due(now), self._steps_until_next_look(step, now)))
        self._looked_step = step
        self._looked_at = now
        self._next_look = step + steps_until_next_look
        if is_due:
            control.should_save = True

    def _is_due(self, now: float) -> bool:
        """Return whether so much time has passed since the last checkpoint that the next one is due."""
        return now - self._saved_at >= 60 * MINUTES

    def _steps_until_next_look(self, step: int, now: float) -> int:
        """Return the steps until the next look: `_SECONDS_BETWEEN_LOOKS` at the pace of the steps since the last one.

        Args:
            step: The present step.
            now: The time in seconds.
        """
        steps_taken = step - self._looked_step
        seconds_a_step = max((now - self._looked_at) / steps_taken, 1e-9)
        steps_at_this_pace = max(1, int(_SECONDS_BETWEEN_LOOKS / seconds_a_step))
        # A few steps may be much shorter than the others, so that the number grows slowly.
        return min(steps_at_this_pace, 2 * steps_taken)
