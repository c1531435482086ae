"""Work spread over processes: ordered results, and no process at all where there is little to do."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from limbeck.errors import CorpusError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting processes costs more than this many small items.
_FEWEST_ITEMS = 4


def map_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[Result]:
    """Iterate over `function(item)` for each item, in order, computed by several processes.

    Args:
        function: A function at the top level of a module, so that any start method can send it.
        items: The work, in pieces of a second or less to a few minutes.
        workers: Processes; the default is one per CPU core that this process may use; 1: this process only.

    Raises:
        CorpusError: if a worker is killed, for example for lack of memory.
    """
    workers = min(workers or available_cores(), len(items))
    if workers <= 1 or len(items) < _FEWEST_ITEMS:
        yield from map(function, items)
        return
    # Forking needs no `if __name__ == "__main__"` in the user's script and imports nothing again. The workers
    # only run pure Python or a tokenizer of their own; where forking is unusual, the platform's way is used.
    method = "fork" if sys.platform == "linux" else None
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(method), initializer=_prepare_worker)
    try:
        with single_threaded_tokenizers():
            results = pool.map(function, items)  # Starts the processes, which inherit the environment.
        yield from results
    except BrokenProcessPool as error:
        raise CorpusError(
            f"A worker process died while building the corpus, perhaps for lack of memory: "
            f"try fewer workers than {workers}; what is finished is kept."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, whose workers' tracebacks would tell nothing; and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the parent; a worker that outlived it would keep its locks and wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


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


def available_cores() -> int:
    """Return the number of CPU cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
