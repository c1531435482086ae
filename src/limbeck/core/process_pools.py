"""Pools of worker processes, and many short items spread over one, in order."""

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from limbeck.core.machine import available_cores
from limbeck.core.workers import settle_worker
from limbeck.errors import CorpusError

Item = TypeVar("Item")
Result = TypeVar("Result")
# Starting processes costs more than this many small items.
_FEWEST_ITEMS = 4

# The function of a worker's items, which it has from its start.
_work: Callable[[Any], Any] | None = None


def map_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[Result]:
    """Iterate over `function(item)` for each item, in order, computed by several processes if there are many items.

    Args:
        function: A function of a module, so that any start method can send it.
        items: The work, in pieces of a second or less to a few minutes.
        workers: Processes; by default one per CPU core that this process may use; 1: this process only.

    Raises:
        CorpusError: if a worker is killed, for example for lack of memory.
    """
    workers = min(workers or available_cores(), len(items))
    if workers <= 1 or len(items) < _FEWEST_ITEMS:
        yield from map(function, items)
        return

    # Forking needs no `if __name__ == "__main__"` in the user's script and imports nothing again. The workers
    # only run pure Python or a tokenizer of their own; where forking is unusual, the platform's way is used. They have
    # the function from their start: a tokenizer that came with every item would be read anew as often.
    method = "fork" if sys.platform == "linux" else None
    try:
        # A worker that dies while work is submitted ends the pool's thread with a traceback, so none begins before.
        start = multiprocessing.get_context(method).Event()
        with process_pool(workers, method, start=start, work=function) as pool:
            # Submitting starts the processes, which inherit the environment.
            with single_threaded_tokenizers():
                futures = deque(pool.submit(_work_on, item) for item in items)
            start.set()
            # Not `pool.map`: where a worker dies it gives the rest up while the pool fails it, which ends the pool's
            # thread with a traceback, and leaves processes that the program waits for at its end (Python 3.11 to 3.13).
            while futures:
                yield futures.popleft().result()
    except BrokenProcessPool as error:
        raise CorpusError(
            "A worker process died while building the corpus, perhaps because memory ran out: try fewer workers "
            f"than {workers}; what is finished is kept."
        ) from error


@contextmanager
def process_pool(
    workers: int,
    method: str | None,
    threads: int | None = None,
    start: Event | None = None,
    work: Callable[[Any], Any] | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of settled worker processes; items that still wait at the end are dropped.

    Args:
        workers: The number of processes.
        method: How they start: `"fork"`, `"spawn"`, or None for the way of the platform.
        threads: The number of torch's threads in each.
        start: The event that they wait for before their first work.
        work: Their function of `_work_on`; a forked process inherits it.
    """
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_settle, initargs=(threads, start, work))
    try:
        yield pool
    finally:
        # After an error before the start the workers would wait for ever.
        if start is not None:
            start.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def single_threaded_tokenizers(wanted: bool = True) -> Iterator[None]:
    """Let processes that are started meanwhile tokenise with one thread, without a notice about the fork.

    Args:
        wanted: Whether processes are started at all.
    """
    if not wanted:
        yield
        return
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _settle(threads: int | None, start: Event | None, work: Callable[[Any], Any] | None) -> None:
    """Settle a worker of a pool: it has its function, and waits for the start."""
    global _work
    _work = work
    settle_worker(threads)
    if start is not None:
        start.wait()


def _work_on(item: Any) -> Any:
    assert _work is not None
    return _work(item)
