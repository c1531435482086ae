"""Processes that work for this one: they end with it, share its cores, and see one GPU each.

A *task* is a value that is sent to a worker process, which runs the same function on each. `run_tasks` is for long
tasks whose process may die; `limbeck.core.process_pools` spreads many short items over processes and keeps their order.
"""

from __future__ import annotations

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
from typing import Any, Generic, TypeAlias, TypeVar

from limbeck.core.machine import available_cores
from limbeck.errors import describe_error

Task = TypeVar("Task")
Send: TypeAlias = Callable[[Any], None]
"""Sends a value that can be pickled to the process that started this one."""
_WATCH_SECONDS = 1.0
"""Time from one call of `watch` to the next."""


@dataclass(frozen=True)
class _End:
    """The message of a worker that its task has ended: the reason why it failed, in one line, or None."""

    problem: str | None


@dataclass
class _Worker(Generic[Task]):
    """A process, its number among the workers, from 0, and the task that it runs now."""

    process: Any
    index: int
    task: Task


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

    The callbacks run in this process.

    Args:
        work: Runs a task, and may send values while it does. It has to be a function of a module, since the processes
            start from scratch and import it.
        tasks: The tasks, which can be pickled, in the order in which they are started.
        workers: Most processes at once.
        ended: Called when a task has ended, with the task and the reason why it failed, in one line, or None.
        received: Called with a task and each value that it sends.
        watch: Called about once a second.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the processes are ended first.
    """
    team = _Team(work, tasks, min(workers, len(tasks)))
    try:
        for index in range(team.count):
            team.start_process(index)
        while team.running:
            for connection in wait(list(team.running), timeout=_WATCH_SECONDS):
                assert isinstance(connection, Connection)
                _take_message(team, connection, ended, received)
            watch()
    finally:
        team.end()


def _take_message(
    team: _Team[Task],
    connection: Connection,
    ended: Callable[[Task, str | None], None],
    received: Callable[[Task, Any], None],
) -> None:
    """Take a message of a worker, or notice that its process has died; the callbacks are those of `run_tasks`."""
    worker = team.running[connection]
    try:
        message = connection.recv()
    except (EOFError, OSError):
        # The process has died with its task: only the end of the process closes its end of the connection.
        team.close_connection(connection)
        # Its exit code is known once it has been waited for.
        worker.process.join()
        problem = f"A worker ended with code {worker.process.exitcode}; out of memory, or killed?"
        ended(worker.task, problem)
        # A new process with the same number, and so the same GPU, takes its place, and gets the next task.
        team.start_process(worker.index)
        return
    if isinstance(message, _End):
        ended(worker.task, message.problem)
        team.hand_out_next(connection)
    else:
        received(worker.task, message)


class _Team(Generic[Task]):
    """The processes of `run_tasks`, and the tasks that wait for one.

    Args:
        work: Runs a task.
        tasks: The tasks in their order.
        count: Number of processes.

    Attributes:
        running: The workers that have a task, by the connections to them.
    """

    def __init__(self, work: Callable[[Task, Send], None], tasks: Sequence[Task], count: int) -> None:
        import torch

        self.count = count
        self.running: dict[Connection, _Worker[Task]] = {}
        self._work = work
        self._waiting = deque(tasks)
        # Processes that have no further task, and end by themselves.
        self._ending: list[Any] = []
        self._context = multiprocessing.get_context("spawn")
        # The workers share the cores that this process may use.
        self._threads = max(1, min(available_cores(), torch.get_num_threads()) // max(count, 1))

    def start_process(self, index: int) -> None:
        """Start a process with the next task, if there is one; the index decides which GPU it sees."""
        if not self._waiting:
            return
        connection, connection_of_process = self._context.Pipe()
        arguments = (self._work, connection_of_process, self._threads, visible_device(index))
        process = self._context.Process(target=_serve, args=arguments)
        process.start()
        # Only the process keeps its end of the pipe, so that reading from the other end fails once the process is dead.
        connection_of_process.close()
        self._hand_out(connection, process, index)

    def hand_out_next(self, connection: Connection) -> None:
        """Give a process that has finished its task the next one; without one it ends."""
        worker = self.running[connection]
        if self._waiting:
            self._hand_out(connection, worker.process, worker.index)
        else:
            self.close_connection(connection)
            self._ending.append(worker.process)

    def close_connection(self, connection: Connection) -> None:
        """Close the connection to a process, which no longer counts as running. One that still runs then ends."""
        del self.running[connection]
        connection.close()

    def end(self) -> None:
        """End all processes."""
        for connection, worker in self.running.items():
            worker.process.terminate()
            connection.close()
            self._ending.append(worker.process)
        for process in self._ending:
            process.join()

    def _hand_out(self, connection: Connection, process: Any, index: int) -> None:
        """Give a process the next task that waits."""
        task = self._waiting.popleft()
        self.running[connection] = _Worker(process, index, task)
        # If the process has died, `run_tasks` notices when it reads from the connection.
        with suppress(OSError):
            connection.send(task)


def run_workers(work: Callable[[Task], None], task: Task, count: int, watch: Callable[[], None]) -> list[str]:
    """Run the same work in several processes until all have ended.

    Args:
        work: The work of each process: a function of a module.
        task: Its argument, which can be pickled.
        count: The number of processes.
        watch: Called about once a second, to show the progress of the processes.

    Returns:
        The reasons why workers failed, one line each.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the processes are ended first.
    """
    problems: list[str] = []

    def note_problem(_task: Task, problem: str | None) -> None:
        if problem is not None:
            problems.append(problem)

    work_without_sending = partial(_work_without_sending, work)
    run_tasks(work_without_sending, [task] * count, workers=count, ended=note_problem, watch=watch)
    return problems


def _work_without_sending(work: Callable[[Task], None], task: Task, _send: Send) -> None:
    work(task)


def _serve(work: Callable[[Task, Send], None], connection: Connection, threads: int, device: str | None) -> None:
    """Run the tasks that the parent sends, in a worker process, until the parent closes the connection."""
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
    """Make this process a worker: it ignores Ctrl-C, which its parent handles, and ends with its parent.

    Args:
        threads: The number of torch's threads; None leaves it.
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
    """Let this process end when its parent does: a parent that is killed cannot end its workers itself."""
    Thread(target=_wait_for_parent, name="end with parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    # Torch's processes hand tensors on by sockets in this folder, which nobody else would remove.
    shutil.rmtree(get_temp_dir(), ignore_errors=True)
    os._exit(1)


def visible_device(index: int) -> str | None:
    """Return the value of `CUDA_VISIBLE_DEVICES` by which a worker sees one GPU only; None without any GPU.

    Workers take turns: the worker of number `index` sees the GPU of number `index` modulo the number of GPUs.
    """
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return None
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu.strip()]
    if not gpus:
        gpus = [str(number) for number in range(count)]
    return gpus[index % count]
