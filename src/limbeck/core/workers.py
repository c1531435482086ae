"""What a process that works for another one needs: an end with its parent, and a GPU of its own."""

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
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, TypeVar

import torch

from limbeck.errors import CorpusError, LimbeckError


def settle_worker(threads: int, device: str | None) -> None:
    """Make this process a worker: Ctrl-C is its parent's business, and it ends when its parent does.

    Args:
        threads: Of torch.
        device: The GPU that it sees, as `visible_device` names it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    torch.set_num_threads(threads)
    Thread(target=_end_with_parent, name="end with parent", daemon=True).start()


def visible_device(index: int) -> str | None:
    """Return the one GPU that a worker sees; None where there is none."""
    count = torch.cuda.device_count()
    if count == 0:
        return None
    named = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    names = named or [str(number) for number in range(count)]
    return names[index % count]


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers: they see it go."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


# The processes of a search on this machine: equal workers on one study, each with its share of cores and its GPU.


Task = TypeVar("Task")
_WATCH_SECONDS = 1.0


def run_workers(work: Callable[[Task], None], task: Task, count: int, watch: Callable[[], None]) -> list[str]:
    """Have several processes do the same work until all have ended; one that dies takes no other with it.

    Args:
        work: What each does: a function of a module, since the processes start from scratch.
        task: What it is given; pickled.
        count: How many.
        watch: Is called about once a second meanwhile, to show how far they are.

    Returns:
        What went wrong, a line for each worker that failed.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the processes are ended first.
    """
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // count)
    running: dict[Connection, Any] = {}
    problems: list[str] = []
    try:
        for index in range(count):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (work, task, threads, visible_device(index), theirs)
            process = context.Process(target=_begin, args=arguments)
            process.start()
            theirs.close()
            running[ours] = process
        while running:
            for connection in wait(list(running), timeout=_WATCH_SECONDS):
                assert isinstance(connection, Connection)
                problem = _last_word(connection, running.pop(connection))
                connection.close()
                if problem is not None:
                    problems.append(problem)
            watch()
    finally:
        for connection, process in running.items():
            process.terminate()
            process.join()
            connection.close()
    return problems


def _last_word(connection: Connection, process: Any) -> str | None:
    """What a process that has ended says of it: nothing, a line, or, where it was killed, only how it ended."""
    try:
        said: str | None = connection.recv()
    except (EOFError, OSError):
        process.join()
        return f"A worker ended with code {process.exitcode}; out of memory, or killed?"
    process.join()
    return said


def _begin(work: Callable[[Task], None], task: Task, threads: int, device: str | None, connection: Connection) -> None:
    settle_worker(threads, device)
    said: str | None = None
    try:
        work(task)
    except LimbeckError as error:
        said = " ".join(str(error).split())
    except Exception as error:  # The parent says it in one line.
        said = " ".join(f"{type(error).__name__}: {error}".split())
    with suppress(OSError):  # Nobody listens any more.
        connection.send(said)


# Work spread over processes: ordered results, and no process at all where there is little to do.


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
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
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
