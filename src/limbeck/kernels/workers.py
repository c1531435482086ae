"""Work on a CPU divided into tasks, one thread each, instead of every operation divided over all threads.

A blocked kernel is a long chain of short operations. Divided one by one they would meet at a barrier after each,
which costs more than the operation does as soon as anything else runs on the machine; and a block would be in no
core's own cache. Tasks meet once, at the end.

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

    As `torch.compiler.disable`, which imports the compiler: that takes two seconds, and waits here for the first call.
    """
    disabled: list[Callable[P, T]] = []

    @wraps(kernel)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not disabled:
            disabled.append(torch.compiler.disable(kernel))
        return disabled[0](*args, **kwargs)

    return call


def run_tasks(tasks: Sequence[Callable[[], T]], device: str = "cpu") -> list[T]:
    """Run tasks on as many threads as PyTorch uses for one operation, without gradient.

    Tasks must not touch each other's results. With one task or one thread, or elsewhere than on a CPU, they run where
    they are.

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
    # Whether gradients are recorded is a matter of each thread.
    with torch.no_grad():
        return task()


def _use_one_thread() -> None:
    # Asking first: a thread takes on the process's default when it is first asked, and would do so later.
    torch.get_num_threads()
    torch.set_num_threads(1)


def _pool_of(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            # All threads have to start now: each sets its own number of threads to 1, and the default that later
            # threads of the process start with is put back after that.
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
