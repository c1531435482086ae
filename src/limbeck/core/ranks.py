"""The processes of a run: which one this is, and what they do and decide together.

A launcher (`torchrun`, `accelerate launch`) starts them and tells each by its environment which it is. One of them, the
main one, owns the run's folder; errors are agreed on, so that all end together and one of them says why.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from torch import distributed

from limbeck.errors import Interrupted, LimbeckError, TrainingError

Result = TypeVar("Result")

# Building a corpus takes as long as it takes. A process that dies is noticed at once, since its connections close.
_PATIENCE = timedelta(days=30)


def process_count() -> int:
    """Return how many processes the launcher started; 1 without one."""
    # Some clusters set the first of the two wherever they run anything.
    return _from_environment("WORLD_SIZE", 1) if "RANK" in os.environ else 1


def process_index() -> int:
    """Return which of the processes this is, from 0."""
    return _from_environment("RANK", 0) if process_count() > 1 else 0


def is_main() -> bool:
    """Whether this process writes and reports; the only one does."""
    return process_index() == 0


def connect() -> None:
    """Find the other processes, if there are any and they were not found before.

    Raises:
        TrainingError: if they do not answer.
    """
    if process_count() == 1 or distributed.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available():
        if "LOCAL_RANK" not in os.environ:
            raise TrainingError(
                "RANK and WORLD_SIZE are set and LOCAL_RANK is not, so that no process knows which GPU is its own; "
                "launch with torchrun or accelerate launch, or set it."
            )
        torch.cuda.set_device(_from_environment("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    try:
        distributed.init_process_group(backend)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"Process {process_index()} of {process_count()} cannot reach the others: {str(error).splitlines()[0]}; "
            "check the launcher's address and port, and that it started them all."
        ) from None
    atexit.register(_disconnect)


def everywhere(what: Callable[[], Result]) -> Result:
    """Do something in every process; where one of them raises, all do.

    Args:
        what: Returns what this process makes of it.

    Raises:
        LimbeckError: the first one that was raised, in every process; the main one is to say it.
    """
    if process_count() == 1:
        return what()
    value: Any = None
    problem: LimbeckError | None = None
    try:
        value = what()
    except LimbeckError as error:
        problem = error
    found = [(index, error) for index, error in enumerate(gathered(problem)) if error is not None]
    if found:
        index, first = found[0]
        if index > 0:
            first.args = (f"Process {index}: {first}",)
        raise same_everywhere(first)
    return value


def from_main(what: Callable[[], Result]) -> Result:
    """Do something in the main process only, and return in all of them what it returned.

    Args:
        what: Returns what can be pickled.

    Raises:
        LimbeckError: that it raised, in every process.
    """
    if process_count() == 1:
        return what()
    return broadcast(everywhere(lambda: what() if is_main() else None))  # type: ignore[return-value]


def broadcast(value: Result) -> Result:
    """Return what the main process gives.

    Args:
        value: Can be pickled; that of other processes does not matter.
    """
    if process_count() == 1:
        return value
    values: list[Any] = [value]
    distributed.broadcast_object_list(values, src=0, group=_patient_group(), device=torch.device("cpu"))
    return values[0]


def gathered(value: Result) -> list[Result]:
    """Return what every process gives, in their order.

    Args:
        value: Can be pickled.
    """
    if process_count() == 1:
        return [value]
    values: list[Any] = [None] * process_count()
    distributed.all_gather_object(values, value, group=_patient_group())
    return values


def main_first(what: Callable[[], Result]) -> Result:
    """Do something in every process, when the main one is done with it: the others find what it left on disk."""
    own = everywhere(lambda: what() if is_main() else None)
    return everywhere(lambda: what() if own is None else own)


def same_everywhere(error: LimbeckError) -> LimbeckError:
    """Mark an error that every process raises, so that only the main one says it."""
    error.raised_everywhere, error.said_elsewhere = True, not is_main()
    return error


def lost_process(error: BaseException) -> str | None:
    """Say what an error is about if it is that another process of the run has ended."""
    if process_count() == 1 or not isinstance(error, RuntimeError):
        return None
    known = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL", "gloo", "Socket")
    text = str(error)
    if not isinstance(error, distributed.DistError) and not any(part in text for part in known):
        return None
    return (
        f"Process {process_index()} lost touch with another one, which has most likely ended: its own message says "
        "why. What was saved before is intact; go on with the same command and --resume."
    )


@cache
def _patient_group() -> Any:
    return distributed.new_group(backend="gloo", timeout=_PATIENCE)


def _disconnect() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _from_environment(name: str, default: int) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


# One process that leads, and others that do what it asks: for work whose course only the main process knows.


_END = "end"
_at_work: list[bool] = []


@contextmanager
def leading() -> Iterator[None]:
    """Lead the other processes, and let them go at the end: the main process does its work in this context."""
    try:
        yield
    except LimbeckError as error:
        # Those who raise it too have gone, those whom a signal stopped may be anywhere, and who is at work on an order
        # hears nothing: they notice that this process ends.
        if not (error.raised_everywhere or isinstance(error, Interrupted) or _at_work):
            give_order(_END)
        raise
    give_order(_END)


def give_order(order: Any) -> None:
    """Have the other processes do something, which this one then takes part in.

    Args:
        order: What; can be pickled.
    """
    if process_count() > 1 and is_main():
        broadcast(order)


@contextmanager
def working() -> Iterator[None]:
    """Note that the processes are at work on an order; an error leaves it noted."""
    _at_work.append(True)
    yield
    _at_work.pop()


def follow(carry_out: Callable[[Any], None]) -> None:
    """Do what the main process asks, until it lets this one go.

    Args:
        carry_out: Takes its part in what an order asks for.

    Raises:
        TrainingError: if the main process ends without a word.
    """
    try:
        while (order := broadcast(None)) != _END:
            carry_out(order)
    except RuntimeError as error:
        lost = lost_process(error)
        if lost is None:
            raise
        raise TrainingError(lost) from error
