"""The processes of a search: the main one, which searches, and those that a launcher started beside it.

A *launcher* such as torchrun starts several processes, which share every batch of a training. They are not the
*workers* that `--workers` starts, each of which trains candidates of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from limbeck.core.rank_tasks import broadcasting_tasks
from limbeck.core.ranks import connect, is_main, process_count, raised_on_all_ranks
from limbeck.errors import RecipeError
from limbeck.models.quiet import quiet
from limbeck.recipe.plan import RunPlan
from limbeck.training.proxy import follow_proxy


@contextmanager
def searched_together(plan: RunPlan, *, share: float, workers: int, tasks: bool = False) -> Iterator[bool]:
    """Divide the processes of a launcher: the main one searches inside this context, the others train along with it.

    In the other processes the context begins only when the search is over, with nothing left to do.

    Args:
        plan: The recipe that candidates are variants of.
        share: Share of the text.
        workers: Processes that the search would start itself.
        tasks: Whether candidates are fine-tuned on tasks, which one process does.

    Yields:
        Whether this is the main process.

    Raises:
        RecipeError: if a launcher has started several processes, for several workers and for tasks.
    """
    launched = process_count()
    if launched > 1 and workers > 1:
        problem = RecipeError(
            f"--workers {workers} starts processes, but a launcher has started {launched} that share every batch; "
            "leave out one of the two."
        )
        raise raised_on_all_ranks(problem)
    if launched > 1 and tasks:
        problem = RecipeError(
            f"--tasks are fine-tuned by one process, but a launcher has started {launched}; leave the tasks out, so "
            "that held-out text decides, or use --workers instead of a launcher."
        )
        raise raised_on_all_ranks(problem)

    connect()
    if not is_main():
        # The main process says what to train. This returns when it has left the context.
        with quiet():
            follow_proxy(plan, share=share)
        yield False
        return
    if launched == 1:
        yield True
        return
    # From here on, what the main process trains is sent to the others too.
    with broadcasting_tasks():
        yield True
