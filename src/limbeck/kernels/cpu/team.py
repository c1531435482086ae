"""The work of a kernel in C divided among threads: those that PyTorch's own operations run on.

PyTorch's threads belong to OpenMP. After an operation they stay awake for a while, looking for the next one. Threads of
another pool would share the cores with them: with such a pool, attention over 64 sentences took 1.5 times as long on
two cores.

The work is a list of *parts*, each a range of things to compute. A thread that is free takes the next part, until none
is left (`team.h`). *Scratch* is memory for the intermediate results of a thread.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from limbeck.kernels.workers import Scratch, run_tasks

_NO_FLAGS = 0
"""Flags of `GOMP_parallel`; they say how threads are bound to cores, and 0 leaves that to OpenMP."""
# Set in a child process that was forked. It inherits no threads, and would wait forever for those of OpenMP.
_forked = threading.Event()
os.register_at_fork(after_in_child=_forked.set)


def divide_work(costs: Sequence[int], parts: int) -> Tensor:
    """Divide a sequence of things into ranges of neighbours that cost about the same.

    Args:
        costs: Cost of each thing, 1 or more, in any unit.
        parts: The most ranges.

    Returns:
        First and last (exclusive) of each range, int64 `[ranges, 2]`.
    """
    total = sum(costs)
    ranges = []
    first = 0
    cost_so_far = 0
    for last, cost in enumerate(costs, 1):
        cost_so_far += cost
        # The same as cost_so_far >= total / parts, in whole numbers.
        is_large_enough = cost_so_far * parts >= total
        if is_large_enough or last == len(costs):
            ranges.append((first, last))
            first = last
            cost_so_far = 0
    return as_pairs(ranges)


def as_pairs(rows: Sequence[tuple[int, int]]) -> Tensor:
    """Return pairs as a kernel in C reads them, int64 `[pairs, 2]`."""
    return torch.tensor(rows, dtype=torch.int64, device="cpu").view(-1, 2)


class _Team(ctypes.Structure):
    """The struct `team` of `team.h`, field by field; `taken` and `threads` are counters that start at 0."""

    _fields_ = (
        ("compute", ctypes.c_void_p),
        ("of", ctypes.c_void_p),
        ("parts", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("taken", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    )


class TeamKernel(NamedTuple):
    """A function in C that computes one part of a kernel's work, from a library whose source includes `team.h`.

    Attributes:
        compute: Address of the function.
        join: The library's `join`, which every thread runs: it computes one part after the other until none is left.
    """

    compute: int
    join: Callable[..., None]

    @classmethod
    def read(cls, library: ctypes.CDLL, name: str) -> "TeamKernel":
        """Find the function in its library.

        Args:
            library: The library.
            name: Name of the function, whose arguments are (const void *of, int64_t first, int64_t last,
                float *scratch).

        Raises:
            AttributeError: if the library has none of that name, or no `join`.
        """
        join = library.join
        join.argtypes = (ctypes.c_void_p,)
        join.restype = None
        return cls(_address(getattr(library, name)), join)

    def run(self, arguments: ctypes.Structure, parts: Tensor, size: int, scratch: Scratch) -> None:
        """Run the function on all parts, in several threads without Python's lock.

        The parts must not touch each other's results.

        Args:
            arguments: Arguments of the function, which it gets as `of`.
            parts: First and last (exclusive) of each part, int64 `[parts, 2]`.
            size: Float32 numbers of scratch that a thread needs.
            scratch: Gives that memory.
        """
        threads = torch.get_num_threads()
        count = parts.shape[0]
        # In `join` of `team.h` a thread takes scratch only once it has found a part. However many threads start, no
        # more than there are parts find one, so no more than this take scratch.
        busy_threads = min(threads, count)
        memory = scratch.take("team", (busy_threads * size,), parts, torch.float32)
        team = _Team(
            compute=self.compute,
            of=ctypes.addressof(arguments),
            parts=parts.data_ptr(),
            scratch=memory.data_ptr(),
            count=count,
            size=size,
        )
        if busy_threads < 2:
            # This thread computes all parts.
            self.join(ctypes.byref(team))
            return
        run_in_openmp_threads = _openmp_runner()
        if run_in_openmp_threads is None or _forked.is_set():
            # OpenMP's threads cannot be used. The tasks are all alike, since each takes parts until none is left.
            run_tasks([partial(self.join, ctypes.byref(team))] * busy_threads)
            return
        # Start as many threads as PyTorch does, even if there are fewer parts. When fewer are asked for, GNU's OpenMP
        # ends the surplus ones, and PyTorch's next operation has to create them again. The call returns once all
        # threads have ended `join`, so `team` and its memory live long enough.
        run_in_openmp_threads(_address(self.join), ctypes.byref(team), threads, _NO_FLAGS)


def _address(function: Any) -> int:
    """The address of a compiled function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def _openmp_runner() -> Callable[..., None] | None:
    """Find the function by which compiled code runs another function in OpenMP's threads.

    It is GNU's `GOMP_parallel`, which the libraries of Intel and LLVM have too. Its arguments are the function that
    each thread runs, the pointer that this gets, the number of threads, and flags.

    Returns:
        The function; None where this process has loaded none.
    """
    if not torch.backends.openmp.is_available():
        return None
    gomp_parallel = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    if gomp_parallel is not None:
        gomp_parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        gomp_parallel.restype = None
    return gomp_parallel
