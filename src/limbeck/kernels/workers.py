"""Work on a CPU divided into tasks, one thread each, instead of every operation divided over all threads.

A blocked kernel is a long chain of short operations. Divided one by one they would meet at a barrier after each,
which costs more than the operation does as soon as anything else runs on the machine; and a block would be in no
core's own cache. Tasks meet once, at the end.

Tasks in Python run on threads of a pool, parts of a kernel in C on those that PyTorch's own operations run on: after an
operation these look for the next one for a while, and a pool would share the cores with them. Attention over 64
sentences took 1.5 times as long so, on two cores.
"""

import ctypes
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
P = ParamSpec("P")

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
# A child process inherits pools but not their threads, and waits forever for those of OpenMP.
_forked = threading.Event()
os.register_at_fork(after_in_child=_pools.clear)
os.register_at_fork(after_in_child=_forked.set)


def left_uncompiled(kernel: Callable[P, T]) -> Callable[P, T]:
    """Keep `torch.compile` out of a function.

    As `torch.compiler.disable`, which imports the compiler: that takes two seconds, and waits here for the first call.
    """
    made: list[Callable[P, T]] = []

    @wraps(kernel)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not made:
            made.append(torch.compiler.disable(kernel))
        return made[0](*args, **kwargs)

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


def divide_work(costs: Sequence[int], parts: int) -> Tensor:
    """Divide a row of things into ranges that cost about the same.

    Args:
        costs: What each costs, 1 or more.
        parts: The most ranges.

    Returns:
        First and last (exclusive) of each range, int64 `[ranges, 2]`.
    """
    ranges, first, taken, whole = [], 0, 0, sum(costs)
    for last, cost in enumerate(costs, 1):
        taken += cost
        if taken * parts >= whole or last == len(costs):
            ranges.append((first, last))
            first, taken = last, 0
    return as_pairs(ranges)


def as_pairs(rows: Sequence[tuple[int, int]]) -> Tensor:
    """Return pairs as a kernel in C reads them, int64 `[pairs, 2]`."""
    return torch.tensor(rows, dtype=torch.int64, device="cpu").view(-1, 2)


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
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor of this thread under `name`, in `shape`, holding anything.

        Args:
            name: Its purpose; taking a name again ends the use of the earlier one.
            shape: Its shape.
            like: A tensor on the device it has to be on.
            dtype: Its dtype.
        """
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size or held.dtype != dtype:
            held = self._held[name] = like.new_empty(size, dtype=dtype)
        return held[:size].view(*shape)


class _Team(ctypes.Structure):
    """`team` of the header."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("compute", "of", "parts", "scratch")),
        *((name, ctypes.c_int64) for name in ("count", "size", "taken", "threads")),
    )


class TeamKernel(NamedTuple):
    """A function of a library whose source includes `team.h`.

    Attributes:
        compute: Its address.
        join: What each thread runs.
    """

    compute: int
    join: Callable[..., None]

    @classmethod
    def read(cls, library: ctypes.CDLL, name: str) -> "TeamKernel":
        """Take it from its library.

        Args:
            library: The library.
            name: A function of (const void *of, int64_t first, int64_t last, float *scratch).

        Raises:
            AttributeError: if the library has none of that name, or no `join`.
        """
        join = library.join
        join.argtypes, join.restype = (ctypes.c_void_p,), None
        return cls(_address(getattr(library, name)), join)

    def run(self, given: ctypes.Structure, parts: Tensor, size: int, scratch: Scratch) -> None:
        """Compute all parts, which must not touch each other's results, without Python's lock.

        Args:
            given: Handed to the function.
            parts: First and last (exclusive) of each, int64 `[parts, 2]`.
            size: Numbers of scratch that a thread needs.
            scratch: Where they are taken from.
        """
        threads = torch.get_num_threads()
        count = parts.shape[0]
        busy = min(threads, count)
        memory = scratch.take("team", (busy * size,), parts, torch.float32)
        team = _Team(self.compute, ctypes.addressof(given), parts.data_ptr(), memory.data_ptr(), count, size)
        if busy < 2:
            self.join(ctypes.byref(team))
        elif (start := _openmp()) is None or _forked.is_set():
            run_tasks([partial(self.join, ctypes.byref(team))] * busy)
        else:  # As many as PyTorch has: GNU's library would end the others, and make them anew.
            start(_address(self.join), ctypes.byref(team), threads, 0)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def _openmp() -> Callable[..., None] | None:
    """Find the function by which compiled code starts OpenMP's threads: (function, data, threads, flags).

    It is GNU's; the libraries of Intel and LLVM have it too. Without one, threads of a pool take the parts.
    """
    start = getattr(ctypes.CDLL(None), "GOMP_parallel", None) if torch.backends.openmp.is_available() else None
    if start is not None:
        start.argtypes, start.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    return start
