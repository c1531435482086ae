"""Tasks that the main rank of a run broadcasts: work whose course only it knows, such as the trainings of a search.

The main rank drives in `broadcasting_tasks`, the others wait in `run_broadcast_tasks`; all take part in each task.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from limbeck.core.ranks import broadcast, is_main, lost_process, process_count
from limbeck.errors import Interrupted, LimbeckError, TrainingError

_END = "end"
"""The task that releases the other ranks."""

_running: list[bool] = []
"""A mark for each task that this rank is within."""


@contextmanager
def broadcasting_tasks() -> Iterator[None]:
    """Let the main rank drive the others, and release them at the end."""
    try:
        yield
    except LimbeckError as error:
        # Ranks that raise it too have left, those stopped by a signal may be anywhere, and those within a task do not
        # listen: they notice that this process ends.
        cannot_listen = error.on_all_ranks or isinstance(error, Interrupted) or bool(_running)
        if not cannot_listen:
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
    """Mark that the ranks are within a task; an error leaves the mark."""
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
        task: Any = broadcast(None)
        while task != _END:
            carry_out(task)
            task = broadcast(None)
    except RuntimeError as error:
        lost = lost_process(error)
        if lost is None:
            raise
        raise TrainingError(lost) from error
