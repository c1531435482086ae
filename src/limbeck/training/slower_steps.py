"""`SlowerSteps`: tells that a stage takes longer than its minutes, since its steps have become slower."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core.blocks import duration
from limbeck.training.measured_steps import MeasuredSteps
from limbeck.training.warn import Warn

_SHARE_OF_STEPS = 0.1
"""The pace is judged after this share of the steps, since the first steps are slower than others."""
_TOLD_FROM = 1.25
"""How many times longer than its minutes a stage must take to be told of."""


class SlowerSteps(TrainerCallback):
    """Warns once that a stage will take longer than the minutes from which its number of steps follows.

    The number of steps stays as it was measured, so that the run can be repeated from its recipe.

    Args:
        measured: The steps of the stage, and their measured time.
        seconds_of_steps: Returns the seconds of all steps so far.
        relative_length: Takes two numbers of steps, and returns the mean length of the rows from the one to the other,
            by that of all rows.
        warn: Receives the warning.
    """

    def __init__(
        self,
        measured: MeasuredSteps,
        seconds_of_steps: Callable[[], float],
        relative_length: Callable[[int, int], float],
        warn: Warn,
    ) -> None:
        self._measured = measured
        self._seconds_of_steps = seconds_of_steps
        self._relative_length = relative_length
        self._warn = warn
        self._was_told = False

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Judge the pace of the steps so far."""
        too_early = state.global_step < _SHARE_OF_STEPS * state.max_steps
        # With another number of steps than the measured one, the stage no longer follows its minutes.
        follows_minutes = state.max_steps == self._measured.max_steps
        if self._was_told or too_early or not follows_minutes or not state.is_world_process_zero:
            return
        # The rows so far may be longer than those to come, as in the measurement.
        seconds_a_step = self._seconds_of_steps() / state.global_step / self._relative_length(0, state.global_step)
        seconds_of_stage = seconds_a_step * state.max_steps
        seconds_asked_for = 60 * self._measured.max_minutes
        if seconds_of_stage < _TOLD_FROM * seconds_asked_for:
            return
        self._was_told = True
        self._warn(
            f"  A step takes {seconds_a_step:.3g} s now, and took {self._measured.seconds_per_step:.3g} s as the stage "
            f"began. So the training takes about {duration(seconds_of_stage)}, not {duration(seconds_asked_for)}. "
            "To end it earlier, press Ctrl-C; `limbeck finish` then keeps the student."
        )
