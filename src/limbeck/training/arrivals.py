"""`Arrivals`: numbers that travel from the device to the host while the next steps run, so that no step waits."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from limbeck.core.ranks import process_count

Note = TypeVar("Note")
_DELAY = 2
"""With several processes, the number of later sendings after which values are handed over.

All processes must act on a value at the same step, so they cannot go by whether it has arrived, which differs between
them. Two steps later it has nearly always arrived. If not, the host is so far ahead of the device that it can wait.
"""


class Sending(NamedTuple, Generic[Note]):
    """Values on their way to the host.

    Attributes:
        values: The tensor on the host; its numbers are valid once the copy has ended.
        arrival: The end of the copy; None for values of a CPU, which need no wait.
        note: The sender's note, which is handed over with the values.
    """

    values: Tensor
    arrival: torch.cuda.Event | None
    note: Note


class Arrivals(Generic[Note]):
    """Hands values over in the order in which they were sent, each with a note.

    Values of a CPU are handed over at once. Those of a GPU are handed over when they have arrived or, with several
    processes, after two more sendings.
    """

    def __init__(self) -> None:
        self._sent: deque[Sending[Note]] = deque()

    def send(self, values: Tensor, note: Note) -> None:
        """Send values to the host, with a note for the receiver."""
        if not values.is_cuda:
            # A copy, since the sender may change its tensor in place.
            self._sent.append(Sending(values.detach().clone(), arrival=None, note=note))
            return
        host = values.detach().to("cpu", non_blocking=True)
        arrival = torch.cuda.Event()
        arrival.record()
        self._sent.append(Sending(host, arrival=arrival, note=note))

    def take(self, *, wait: bool = False) -> Iterator[tuple[Tensor, Note]]:
        """Yield the values that have arrived, each with its note.

        Args:
            wait: Yield all values that were sent, waiting for those that have not arrived.
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
