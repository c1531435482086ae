"""How long a stage has been trained, over all processes that worked on it in turn."""

from __future__ import annotations

import time


class StageClock:
    """Counts the seconds of a stage from its first batch on; a resumed one goes on from its checkpoint.

    What a stopped run did after its last checkpoint is done again, and counts once.
    """

    def __init__(self) -> None:
        self._before = 0.0
        self._started: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of training, evaluation and saving until now, to the millisecond."""
        now = 0.0 if self._started is None else time.monotonic() - self._started
        return round(self._before + now, 3)

    def start(self) -> None:
        """Begin to count; nothing if it counts already."""
        if self._started is None:
            self._started = time.monotonic()

    def go_on_from(self, seconds: float) -> None:
        """Take up what a checkpoint says, and wait for the next start."""
        self._before, self._started = seconds, None
