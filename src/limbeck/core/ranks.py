"""The processes of a run and their collective calls.

A launcher (`torchrun`, `accelerate launch`) starts them and gives each its rank in its environment. The main process,
rank 0, owns the run's folder; errors are agreed on, so that all end together and one of them prints why.
"""

import atexit
import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any, TypeVar

from limbeck.errors import LimbeckError, TrainingError

Result = TypeVar("Result")

_PATIENCE = timedelta(days=30)
"""Longest time of a collective call: one rank may build a corpus for days. The death of a process is noticed at once,
since its connections close."""


_LOST_CONNECTION = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL", "gloo", "Socket")
"""Parts of messages of errors that mean that the connection to a process is gone."""


def process_count() -> int:
    """Return the number of processes that the launcher started; 1 without one."""
    # Some clusters set WORLD_SIZE for every program, but only a launcher sets RANK.
    if "RANK" not in os.environ:
        return 1
    return _from_environment("WORLD_SIZE", 1)


def process_index() -> int:
    """Return the number of this process, from 0."""
    if process_count() == 1:
        return 0
    return _from_environment("RANK", 0)


def is_main() -> bool:
    """Return whether this is the main process (rank 0), which writes files and reports."""
    return process_index() == 0


def connect() -> None:
    """Connect to the other processes, unless there are none or this has happened before.

    Raises:
        TrainingError: if they do not answer.
    """
    if process_count() == 1:
        return
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    # Gloo exchanges tensors on the CPU, NCCL those on GPUs.
    backend = "gloo"
    if torch.cuda.is_available():
        if "LOCAL_RANK" not in os.environ:
            raise TrainingError(
                "RANK and WORLD_SIZE are set but LOCAL_RANK is not, so no process knows which GPU is its own; "
                "launch with torchrun or accelerate launch, or set LOCAL_RANK."
            )
        torch.cuda.set_device(_from_environment("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    try:
        distributed.init_process_group(backend)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"Process {process_index()} of {process_count()} cannot reach the others: {str(error).splitlines()[0]}; "
            "check the launcher's address and port, and whether the launcher started all processes."
        ) from None
    atexit.register(_disconnect)


def on_all_ranks(function: Callable[[], Result]) -> Result:
    """Call a function on every rank; where it raises on one, it raises on all.

    Args:
        function: Is called once on each rank.

    Returns:
        The result of this rank.

    Raises:
        LimbeckError: the one of the lowest rank, on all of them; the main rank prints it.
    """
    if process_count() == 1:
        return function()
    value: Any = None
    problem: LimbeckError | None = None
    try:
        value = function()
    except LimbeckError as error:
        problem = error
    # Every rank receives the errors of all, and raises the first.
    for rank, raised in enumerate(gather(problem)):
        if raised is None:
            continue
        if rank > 0:
            raised.args = (f"Process {rank}: {raised}",)
        raise raised_on_all_ranks(raised)
    return value


def on_main_rank(function: Callable[[], Result]) -> Result:
    """Call a function on the main rank only, and return its result on all.

    Args:
        function: Returns a value that can be pickled.

    Raises:
        LimbeckError: the error of the function, on all ranks.
    """
    if process_count() == 1:
        return function()
    result = on_all_ranks(partial(_call_on_main, function))
    return broadcast(result)  # type: ignore[return-value]


def _call_on_main(function: Callable[[], Result]) -> Result | None:
    """Call a function on the main rank; on any other rank return None."""
    if not is_main():
        return None
    return function()


def broadcast(value: Result) -> Result:
    """Return the value of the main rank.

    Args:
        value: Can be pickled; ignored on other ranks.
    """
    import torch
    from torch import distributed

    if process_count() == 1:
        return value
    values: list[Any] = [value]
    distributed.broadcast_object_list(values, src=0, group=_patient_group(), device=torch.device("cpu"))
    return values[0]


def gather(value: Result) -> list[Result]:
    """Return the values of all ranks, in their order.

    Args:
        value: Can be pickled.
    """
    from torch import distributed

    if process_count() == 1:
        return [value]
    values: list[Any] = [None] * process_count()
    distributed.all_gather_object(values, value, group=_patient_group())
    return values


def main_rank_first(function: Callable[[], Result]) -> Result:
    """Call a function on the main rank, then on the others, which find its files on disk; return each rank's result.

    If the result is None, the main rank calls the function again with the others.
    """
    # The other ranks wait here until the main rank is done, and get None.
    result = on_all_ranks(partial(_call_on_main, function))
    if result is None:
        return on_all_ranks(function)
    # This is the main rank, which has its result. It only learns here whether the call fails on another rank.
    return on_all_ranks(lambda: result)


def raised_on_all_ranks(error: LimbeckError) -> LimbeckError:
    """Mark an error that every rank raises, so that only the main one prints it."""
    error.on_all_ranks = True
    error.printed_by_other_rank = not is_main()
    return error


def lost_process(error: BaseException) -> str | None:
    """Return a message where an error means that another process of the run has ended; None for any other error."""
    from torch import distributed

    if process_count() == 1 or not isinstance(error, RuntimeError):
        return None
    text = str(error)
    names_connection = any(part in text for part in _LOST_CONNECTION)
    if not isinstance(error, distributed.DistError) and not names_connection:
        return None
    return (
        f"Process {process_index()} lost touch with another one, which has most likely ended: its message says why. "
        "Go on with the same command and --resume, from the last checkpoint if there is one."
    )


@cache
def _patient_group() -> Any:
    """Make the group of processes whose calls may take days."""
    from torch import distributed

    return distributed.new_group(backend="gloo", timeout=_PATIENCE)


def _disconnect() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def _from_environment(name: str, default: int) -> int:
    """Return a whole number from the environment, or the default where it is missing or no number."""
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default
