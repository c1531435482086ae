"""Progress: the functions that are called while a corpus is read, tokenised and built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias, TypeVar

Item = TypeVar("Item")

Progress: TypeAlias = Callable[[str, int, int | None, str], None]
"""Called with the name of a step, the amount done, the total or `None` if it is not known, and what is counted."""
StepProgress: TypeAlias = Callable[[int, int | None, str], None]
"""The same for one step, without its name."""

ITEMS_BETWEEN_REPORTS = 1000


def step_progress(progress: Progress | None, step: str) -> StepProgress | None:
    """Return the progress of one step; None if no progress is reported."""
    if progress is None:
        return None
    return partial(progress, step)


def waiting_notice(progress: Progress | None, step: str) -> Callable[[], None] | None:
    """Return a function that reports a wait for another process as a step; None if no progress is reported."""
    if progress is None:
        return None
    return partial(progress, step, 0, None, "")


def count_items(items: Iterator[Item], progress: StepProgress | None, unit: str) -> Iterator[Item]:
    """Iterate over items, and report their number after every thousand.

    Args:
        items: The items.
        progress: Called with their number so far.
        unit: Name of the items, such as `rows`.
    """
    if progress is None:
        yield from items
        return
    progress(0, None, unit)
    for number, item in enumerate(items, start=1):
        if number % ITEMS_BETWEEN_REPORTS == 0:
            progress(number, None, unit)
        yield item
