"""A search under a launcher of several processes: one searches, all share the batches of what it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from limbeck.core.ranks import connect, is_main, leading, process_count, same_everywhere
from limbeck.errors import RecipeError
from limbeck.models.loading import quiet
from limbeck.recipe.plan import RunPlan
from limbeck.training.proxy import follow_proxy


@contextmanager
def searched_together(plan: RunPlan, *, share: float, workers: int, tasks: bool = False) -> Iterator[bool]:
    """Take part in a search: the main process searches in this context, the others have trained with it before.

    Args:
        plan: The recipe that candidates are variants of.
        share: Share of the text.
        workers: Processes that the search would start itself.
        tasks: Whether candidates are fine-tuned on tasks, which one process does.

    Returns:
        Whether this is the process that searches, and writes what it found.

    Raises:
        RecipeError: for both kinds of processes at once, and for tasks.
    """
    if process_count() > 1 and workers > 1:
        raise same_everywhere(
            RecipeError(
                f"--workers {workers} starts processes of its own, and {process_count()} were launched that share "
                "every batch; leave out one of the two."
            )
        )
    if process_count() > 1 and tasks:
        raise same_everywhere(
            RecipeError(
                f"--tasks are fine-tuned by one process, and {process_count()} were launched; leave the tasks out, so "
                "that held-out text decides, or take --workers instead of a launcher."
            )
        )
    connect()
    if not is_main():
        with quiet():
            follow_proxy(plan, share=share)
        yield False
        return
    with leading() if process_count() > 1 else nullcontext():
        yield True
