"""`Arrivals`: asynchronous copies from device to host, read one or two steps later."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor

from limbeck.core.ranks import process_count

Note = TypeVar("Note")
# Several processes must all act at the same step, so they cannot go by what has arrived at each. Two steps later the
# values are there, or the host is so far ahead of the device that it can wait.
_DELAY = 2


class Arrivals(Generic[Note]):
    """Hands values over in the order in which they were sent, each with a note.

    On a CPU they are there at once. From a GPU they are handed over when they have arrived; with several processes
    always two sendings later.
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[Tensor, torch.cuda.Event | None, Note]] = deque()

    def send(self, values: Tensor, note: Note) -> None:
        """Send values to the host."""
        if not values.is_cuda:
            self._sent.append((values.detach().clone(), None, note))
            return
        host = values.detach().to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._sent.append((host, event, note))

    def take(self, *, wait: bool = False) -> Iterator[tuple[Tensor, Note]]:
        """Yield what has arrived.

        Args:
            wait: Wait for all that was sent.
        """
        while self._sent and (wait or self._is_due()):
            values, event, note = self._sent.popleft()
            if event is not None:
                event.synchronize()
            yield values, note

    def _is_due(self) -> bool:
        event = self._sent[0][1]
        if event is None:
            return True
        return event.query() if process_count() == 1 else len(self._sent) > _DELAY
