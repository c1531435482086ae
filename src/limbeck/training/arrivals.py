"""`Arrivals`: numbers that travel from the device to the host while the next steps run, so that no step waits."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from limbeck.core.ranks import process_count

Note = TypeVar("Note")
# Several processes must all act at the same step, so they cannot go by what has arrived at each. Two steps later the
# values are there, or the host is so far ahead of the device that it can wait.
_DELAY = 2


class Sending(NamedTuple, Generic[Note]):
    """Values on their way to the host.

    Attributes:
        values: On the host; their numbers are valid once they have arrived.
        arrival: The end of their copy; None where there is nothing to wait for.
        note: Belongs to them.
    """

    values: Tensor
    arrival: torch.cuda.Event | None
    note: Note


class Arrivals(Generic[Note]):
    """Hands values over in the order in which they were sent, each with a note.

    On a CPU they are there at once. From a GPU they are handed over when they have arrived; with several processes
    always two sendings later.
    """

    def __init__(self) -> None:
        self._sent: deque[Sending[Note]] = deque()

    def send(self, values: Tensor, note: Note) -> None:
        """Send values to the host."""
        if not values.is_cuda:
            self._sent.append(Sending(values.detach().clone(), None, note))
            return
        host = values.detach().to("cpu", non_blocking=True)
        arrival = torch.cuda.Event()
        arrival.record()
        self._sent.append(Sending(host, arrival, note))

    def take(self, *, wait: bool = False) -> Iterator[tuple[Tensor, Note]]:
        """Yield the values that have arrived, each with its note.

        Args:
            wait: Wait for all that was sent.
        """
        while self._sent and (wait or self._is_due()):
            sending = self._sent.popleft()
            if sending.arrival is not None:
                sending.arrival.synchronize()
            yield sending.values, sending.note

    def _is_due(self) -> bool:
        """Return whether the oldest values are to be handed over."""
        arrival = self._sent[0].arrival
        if arrival is None:
            return True
        if process_count() > 1:
            return len(self._sent) > _DELAY
        return arrival.query()
