"""`Pace`: when the next request may be sent, for all threads that ask one endpoint."""

from __future__ import annotations

import threading
import time

_SECONDS_OF_MINUTE = 60


class StoppedError(Exception):
    """No further request is to be sent."""


class Pace:
    """Lets requests go at equal distances, and none while the endpoint wants a pause.

    Args:
        per_minute: Most requests in a minute; None for as many as there are.
    """

    def __init__(self, per_minute: float | None = None) -> None:
        self._interval = 0.0 if per_minute is None else _SECONDS_OF_MINUTE / per_minute
        self._lock = threading.Lock()
        # The time of `time.monotonic` before which no request goes.
        self._next = 0.0
        self._stopped = threading.Event()

    def wait(self) -> None:
        """Wait until a request may go.

        Raises:
            StoppedError: once `stop` was called.
        """
        while not self._stopped.is_set():
            with self._lock:
                now = time.monotonic()
                delay = self._next - now
                if delay <= 0:
                    self._next = now + self._interval
                    return
            # Another thread may take the turn, or ask for a longer pause: then this one waits again.
            self._stopped.wait(delay)
        raise StoppedError

    def pause(self, seconds: float) -> None:
        """Let no request go for some seconds."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)

    def stop(self) -> None:
        """Let no request go any more, and wake the threads that wait for one."""
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()
