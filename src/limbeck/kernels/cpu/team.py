"""The work of a kernel in C divided among threads: those that PyTorch's own operations run on.

After an operation these threads look for the next one for a while, and a pool of others would share the cores with
them: so attention over 64 sentences took 1.5 times as long, on two cores.
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

# A child process inherits no threads, and would wait forever for those of OpenMP.
_forked = threading.Event()
os.register_at_fork(after_in_child=_forked.set)


def divide_work(costs: Sequence[int], parts: int) -> Tensor:
    """Divide a row of things into ranges that cost about the same.

    Args:
        costs: What each costs, 1 or more.
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
    """`team` of the header."""

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
        join.argtypes = (ctypes.c_void_p,)
        join.restype = None
        return cls(_address(getattr(library, name)), join)

    def run(self, arguments: ctypes.Structure, parts: Tensor, size: int, scratch: Scratch) -> None:
        """Compute all parts, which must not touch each other's results, without Python's lock.

        Args:
            arguments: Of the function.
            parts: First and last (exclusive) of each, int64 `[parts, 2]`.
            size: Numbers of scratch that a thread needs.
            scratch: Where they are taken from.
        """
        threads = torch.get_num_threads()
        count = parts.shape[0]
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
            self.join(ctypes.byref(team))
            return
        start_threads = _openmp()
        if start_threads is None or _forked.is_set():
            run_tasks([partial(self.join, ctypes.byref(team))] * busy_threads)
            return
        # As many as PyTorch has: GNU's library would end the others, and make them anew.
        start_threads(_address(self.join), ctypes.byref(team), threads, 0)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def _openmp() -> Callable[..., None] | None:
    """Find the function by which compiled code starts OpenMP's threads: (function, data, threads, flags).

    It is GNU's; the libraries of Intel and LLVM have it too. Without one, threads of a pool take the parts.
    """
    if not torch.backends.openmp.is_available():
        return None
    start_threads = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    if start_threads is not None:
        start_threads.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        start_threads.restype = None
    return start_threads
