"""Processes that work for this one: they end with it, share its cores, and see one GPU each.

`run_tasks` is for long tasks whose process may die; `map_parallel` spreads many short ones, in order.
"""

import multiprocessing
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.util import get_temp_dir
from threading import Thread
from typing import Any, TypeAlias, TypeVar

from limbeck.core.machine import available_cores
from limbeck.errors import describe_error

Task = TypeVar("Task")
Send: TypeAlias = Callable[[Any], None]
"""Sends a value that can be pickled to the process that started this one."""
_WATCH_SECONDS = 1.0


@dataclass(frozen=True)
class _End:
    """The end of a task, and why it failed, in one line."""

    problem: str | None


def run_tasks(
    work: Callable[[Task, Send], None],
    tasks: Sequence[Task],
    *,
    workers: int,
    ended: Callable[[Task, str | None], None],
    received: Callable[[Task, Any], None] = lambda *_: None,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Run tasks in processes, one after another in each; a process that dies fails its task only, and is replaced.

    Args:
        work: Runs a task: a function of a module, since the processes start from scratch.
        tasks: The tasks, which can be pickled, in their order.
        workers: Most processes at once.
        ended: Is called with each task and the line that says why it failed; None where it did not.
        received: Is called with each value that a task sends.
        watch: Is called about once a second meanwhile.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the processes are ended first.
    """
    import torch

    context = multiprocessing.get_context("spawn")
    count = min(workers, len(tasks))
    waiting = deque(tasks)
    running: dict[Connection, tuple[Any, int, Task]] = {}
    idle: list[Any] = []

    def start(index: int) -> None:
        ours, theirs = context.Pipe()
        threads = max(1, min(available_cores(), torch.get_num_threads()) // count)
        process = context.Process(target=_serve, args=(work, theirs, threads, visible_device(index)))
        process.start()
        theirs.close()
        hand_out(ours, process, index)

    def hand_out(connection: Connection, process: Any, index: int) -> None:
        running[connection] = (process, index, waiting.popleft())
        with suppress(OSError):  # A process that died is met as its end of the connection is read.
            connection.send(running[connection][-1])

    try:
        for index in range(count):
            start(index)
        while running:
            for connection in wait(list(running), timeout=_WATCH_SECONDS):
                assert isinstance(connection, Connection)
                process, index, task = running[connection]
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    del running[connection]
                    connection.close()
                    process.join()
                    ended(task, f"A worker ended with code {process.exitcode}; out of memory, or killed?")
                    if waiting:
                        start(index)
                    continue
                if not isinstance(message, _End):
                    received(task, message)
                    continue
                ended(task, message.problem)
                if waiting:
                    hand_out(connection, process, index)
                else:
                    del running[connection]
                    connection.close()  # At which the process ends.
                    idle.append(process)
            watch()
    finally:
        for connection, (process, *_) in running.items():
            process.terminate()
            connection.close()
            idle.append(process)
        for process in idle:
            process.join()


def run_workers(work: Callable[[Task], None], task: Task, count: int, watch: Callable[[], None]) -> list[str]:
    """Have several processes do the same work until all have ended.

    Args:
        work: What each does: a function of a module.
        task: Its argument; pickled.
        count: How many processes.
        watch: Is called about once a second meanwhile, to show how far they are.

    Returns:
        Why workers failed, a line each.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the processes are ended first.
    """
    problems: list[str | None] = []
    run_tasks(
        partial(_without_sending, work),
        [task] * count,
        workers=count,
        ended=lambda _, problem: problems.append(problem),
        watch=watch,
    )
    return [problem for problem in problems if problem is not None]


def _without_sending(work: Callable[[Task], None], task: Task, send: Send) -> None:
    work(task)


def _serve(work: Callable[[Task, Send], None], connection: Connection, threads: int, device: str | None) -> None:
    """Run the tasks that come in, until the other end closes."""
    settle_worker(threads, device)
    with suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            problem: str | None = None
            try:
                work(task, connection.send)
            except Exception as error:  # The parent prints it.
                problem = describe_error(error)
            connection.send(_End(problem))


def settle_worker(threads: int | None = None, device: str | None = None) -> None:
    """Make this process a worker: it leaves Ctrl-C to its parent, and ends with it.

    Args:
        threads: Of torch; None leaves them.
        device: The GPU that it sees, see `visible_device`; None leaves all.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    end_with_parent()


def end_with_parent() -> None:
    """Let this process end when its parent does: one that is killed cannot end its workers, which would stay."""
    Thread(target=_wait_for_parent, name="end with parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        shutil.rmtree(get_temp_dir(), ignore_errors=True)  # The sockets by which processes hand tensors on.
        os._exit(1)


def visible_device(index: int) -> str | None:
    """Return the one GPU that a worker sees; None where there is none."""
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return None
    named = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    names = named or [str(number) for number in range(count)]
    return names[index % count]
