"""Ctrl-C while training: finish the step, save a checkpoint, then stop."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class InterruptSaver(TrainerCallback):
    """Turns the first SIGINT into a checkpoint and a clean stop; a second one stops at once."""

    def __init__(self) -> None:
        self.interrupted = False
        self._previous: Any = None
        self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Listen for the signal, where this thread may."""
        try:
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        except ValueError:  # Only the main thread may listen; elsewhere Ctrl-C is the caller's business.
            self._installed = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for a checkpoint and the end of training once a signal has come."""
        if self.interrupted:
            control.should_save = True
            control.should_training_stop = True
        return control

    def close(self) -> None:
        """Give the signal back."""
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)
            self._installed = False
