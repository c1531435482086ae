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
_STEPS_OF_PACE = 2
"""Steps from whose time the step of the next checkpoint follows."""


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

    After each checkpoint the pace of the next steps gives the step of the following one. All processes take the pace of
    the main process, so that they save at the same step, and no other step waits for an exchange.
    """

    def __init__(self) -> None:
        # The last checkpoint or the begin of the training, and the step whose end is the first time of the pace.
        self._last_step = 0
        self._last_time = 0.0
        self._pace_time = 0.0
        self._next_step: int | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the time from here."""
        self._count_from(state.global_step)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the time from this checkpoint, whatever asked for it."""
        self._count_from(state.global_step)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint at its step; find that step at the pace of the first steps."""
        step = state.global_step
        steps_taken = step - self._last_step
        # The first step may compile kernels, and is none of the pace.
        if steps_taken == 1:
            self._pace_time = time.monotonic()
        if steps_taken == 1 + _STEPS_OF_PACE:
            self._next_step = step + broadcast(self._steps_until_next())
        if step == self._next_step:
            control.should_save = True

    def _count_from(self, step: int) -> None:
        self._last_step = step
        self._last_time = time.monotonic()
        self._next_step = None

    def _steps_until_next(self) -> int:
        """Return the steps, at least 1, that end within the time that is left until the next checkpoint."""
        now = time.monotonic()
        seconds_left = 60 * MINUTES - (now - self._last_time)
        seconds_a_step = max((now - self._pace_time) / _STEPS_OF_PACE, 1e-9)
        return max(1, int(seconds_left / seconds_a_step))
