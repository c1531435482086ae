"""The processes of a search on this machine: equal workers on one study, each with its share of cores and its GPU."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from limbeck.errors import LimbeckError
from limbeck.worker_process import settle_worker, visible_device

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
