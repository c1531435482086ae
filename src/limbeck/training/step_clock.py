"""The time that a stage spends on its steps."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from limbeck.core.devices import synchronise


class StepClock:
    """Times the steps of a stage, over all processes that trained it, without the measurements between them.

    Args:
        device: The device of the training; work that it has begun belongs to the steps.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Seconds of the steps that are over, and the time (`time.monotonic`) since which the present ones run: None
        # before the first step and in a pause.
        self._seconds = 0.0
        self._running_since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds so far, to the millisecond."""
        seconds = self._seconds
        if self._running_since is not None:
            seconds += time.monotonic() - self._running_since
        return round(seconds, 3)

    def start(self) -> None:
        """Begin to count; a clock that counts already goes on."""
        if self._running_since is None:
            self._running_since = time.monotonic()

    def go_on_from(self, seconds: float) -> None:
        """Take the seconds of a checkpoint; the clock begins to count with the next step."""
        self._seconds = seconds
        self._running_since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of the block."""
        # Nothing is counted before the first step, nor in a pause of this pause.
        if self._running_since is None:
            yield
            return
        synchronise(self._device)
        self._seconds += time.monotonic() - self._running_since
        self._running_since = None
        try:
            yield
        finally:
            self._running_since = time.monotonic()
