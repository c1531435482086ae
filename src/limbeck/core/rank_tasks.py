"""Tasks that the main rank sends to all ranks: in a search, only the main rank decides what all of them train next.

A *rank* is a process of a launcher; the main one has rank 0. It decides within `broadcasting_tasks`, while the others
wait for tasks in `run_broadcast_tasks`. All ranks take part in each task.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from limbeck.core.ranks import broadcast, is_main, lost_process, process_count
from limbeck.errors import Interrupted, LimbeckError, TrainingError

_END = "end"
"""The task that releases the other ranks."""

_running: list[bool] = []
"""One entry for each task that this rank is carrying out, and for each that failed."""


@contextmanager
def broadcasting_tasks() -> Iterator[None]:
    """Let the main rank send tasks to the other ranks inside the block, and release these at its end."""
    try:
        yield
    except LimbeckError as error:
        # The other ranks can be released only while they wait for a task. They do not wait where they have raised the
        # same error, were stopped by a signal, or still carry out a task. They then notice that this process ends.
        were_stopped_too = error.on_all_ranks or isinstance(error, Interrupted)
        are_busy = bool(_running)
        if not were_stopped_too and not are_busy:
            broadcast_task(_END)
        raise
    broadcast_task(_END)


def broadcast_task(task: Any) -> None:
    """Send a task to the other ranks; the main one then takes part in it.

    Args:
        task: Can be pickled.
    """
    if process_count() > 1 and is_main():
        broadcast(task)


@contextmanager
def running_task() -> Iterator[None]:
    """Note that the ranks are carrying out a task; after an error in it the note stays."""
    _running.append(True)
    yield
    _running.pop()


def run_broadcast_tasks(carry_out: Callable[[Any], None]) -> None:
    """Run the tasks of the main rank until it releases this one.

    Args:
        carry_out: Takes part in a task.

    Raises:
        TrainingError: if the main process ends without releasing this one.
    """
    try:
        # `broadcast` returns the main rank's value, whatever this rank gives.
        task: Any = broadcast(None)
        while task != _END:
            carry_out(task)
            task = broadcast(None)
    except RuntimeError as error:
        lost = lost_process(error)
        if lost is None:
            raise
        raise TrainingError(lost) from error
