"""One process that leads, and others that do what it asks: for work whose course only the main process knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from limbeck.errors import Interrupted, LimbeckError, TrainingError
from limbeck.training.processes import broadcast, is_main, lost_process, process_count

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
