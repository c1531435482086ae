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
# Starting processes takes longer than this many small items.
_FEWEST_ITEMS = 4

# In a worker process: the function that it applies to each item.
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

    # Forked processes need no `if __name__ == "__main__"` in the user's script, and import nothing again. Forking is
    # safe here, since the workers only run pure Python or a tokenizer of their own. They inherit the function: one that
    # was sent with every item would bring its tokenizer each time.
    method = "fork" if sys.platform == "linux" else None
    try:
        # Workers wait for this event until all work is submitted: if one died before, the pool's thread would end with
        # a traceback.
        start = multiprocessing.get_context(method).Event()
        with process_pool(workers, method, start=start, work=function) as pool:
            # Submitting starts the processes, which inherit the environment.
            with single_threaded_tokenizers():
                futures = deque(pool.submit(_work_on, item) for item in items)
            start.set()
            # `pool.map` is not used, for a fault of Python 3.11 to 3.13: after the death of a worker it cancels the
            # other items while the pool fails them. The pool's thread then ends with a traceback, and leaves processes
            # that the program waits for at its end.
            while futures:
                yield futures.popleft().result()
    except BrokenProcessPool as error:
        raise CorpusError(
            "A worker process died while building the corpus, perhaps because memory ran out: run it again with "
            f"fewer than {workers} workers; finished parts are kept."
        ) from error


@contextmanager
def process_pool(
    workers: int,
    method: str | None,
    threads: int | None = None,
    start: Event | None = None,
    work: Callable[[Any], Any] | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of worker processes, which end with this one; at the end, items that still wait are dropped.

    Args:
        workers: The number of processes.
        method: How they start: `"fork"`, `"spawn"`, or None for the way of the platform.
        threads: The number of torch's threads in each.
        start: The event that they wait for before their first item.
        work: The function that `_work_on` applies to each item.
    """
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_settle, initargs=(threads, start, work))
    try:
        yield pool
    finally:
        # If an error came before the start, the workers would otherwise wait for ever.
        if start is not None:
            start.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def single_threaded_tokenizers(wanted: bool = True) -> Iterator[None]:
    """Let processes that are started inside the block tokenise with one thread each.

    It also silences the warning of `tokenizers` about forked processes.

    Args:
        wanted: Whether processes are started at all; otherwise nothing changes.
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
    """Prepare a worker process of a pool: keep the function of its items, and wait for the start."""
    global _work
    _work = work
    settle_worker(threads)
    if start is not None:
        start.wait()


def _work_on(item: Any) -> Any:
    assert _work is not None
    return _work(item)
