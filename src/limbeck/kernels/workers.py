"""Work on a CPU divided into tasks, one thread each, instead of every operation divided over all threads.

A blocked kernel is a long chain of short operations. If every operation were divided over all threads, the threads
would wait for each other after each, which takes longer than the operation as soon as anything else runs on the
machine; and no core would have a block in its own cache. Tasks wait for each other once, at the end.

Tasks in Python run on threads of a pool; parts of a kernel in C run on PyTorch's own, see `cpu/team.py`.
"""

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
P = ParamSpec("P")

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
# A child process inherits pools but not their threads.
os.register_at_fork(after_in_child=_pools.clear)


def left_uncompiled(kernel: Callable[P, T]) -> Callable[P, T]:
    """Keep `torch.compile` out of a function.

    It does what `torch.compiler.disable` does, which imports the compiler and so takes two seconds. Here this happens
    only at the first call.
    """
    # The disabled function, once it has been made.
    disabled: list[Callable[P, T]] = []

    @wraps(kernel)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        """Call the disabled function."""
        if not disabled:
            disabled.append(torch.compiler.disable(kernel))
        return disabled[0](*args, **kwargs)

    return call


def run_tasks(tasks: Sequence[Callable[[], T]], device: str = "cpu") -> list[T]:
    """Run tasks on as many threads as PyTorch uses for one operation, without gradient.

    Tasks must not touch each other's results. With one task or one thread, or on another device than a CPU, they run in
    the calling thread.

    Args:
        tasks: Computations on tensors of the device.
        device: Type of the device.

    Returns:
        Their results, in the order of `tasks`.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(tasks) < 2 or device != "cpu":
        return [task() for task in tasks]
    return list(_pool_of(threads).map(_without_gradient, tasks))


def _without_gradient(task: Callable[[], T]) -> T:
    """Run a task without gradient; each thread has a setting of its own whether gradients are recorded."""
    with torch.no_grad():
        return task()


def _use_one_thread() -> None:
    """Let the operations of a new thread run on that thread alone."""
    # A thread takes over the process's number of threads when it first asks for it, which would replace a number that
    # was set before. So it asks first.
    torch.get_num_threads()
    torch.set_num_threads(1)


def _pool_of(threads: int) -> ThreadPoolExecutor:
    """Return the process's pool of so many threads, which is made when it is first needed."""
    with _lock:
        if threads not in _pools:
            # Each new thread sets its number of threads to 1, and by that also the number that later threads of the
            # process begin with. All threads of the pool start now, up to a barrier, so that this number can be put
            # back after them.
            started = threading.Barrier(threads + 1)
            pool = ThreadPoolExecutor(threads, "limbeck-kernel", _use_one_thread)
            for _ in range(threads):
                pool.submit(started.wait)
            started.wait()
            torch.set_num_threads(threads)
            _pools[threads] = pool
        return _pools[threads]


class Scratch(threading.local):
    """Memory that each thread uses again for one task after another, so that its pages are mapped only once.

    It is freed with the object: make one for each call of a kernel, or, where its mapping takes a share of the call,
    one for all.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor of this thread under `name`, in `shape`, holding anything.

        Args:
            name: Its purpose; taking a name again ends the use of the earlier one.
            shape: Its shape.
            like: A tensor on the device it has to be on.
            dtype: Its dtype.
        """
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size or memory.dtype != dtype:
            memory = like.new_empty(size, dtype=dtype)
            self._memory[name] = memory
        return memory[:size].view(*shape)
