"""Attention of packed samples in bfloat16 by a kernel in C, compiled at first use where a C compiler is found.

Over short samples attention in PyTorch is a long chain of short operations, and starting them costs more than they do.
The kernel computes a head of a sample at a time, in float32 and in memory that stays in cache; the backward pass
computes probabilities anew, as in `packed_attention`. It is C without any header of Python or PyTorch, so a compiler
(`$CC`, or `cc`) takes a second; the library is kept in limbeck's cache, by source, compiler and processor.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.core.files import atomic_file, default_cache_dir, fingerprint
from limbeck.kernels.dropout import draw_seed, dropped_share
from limbeck.kernels.precision import refuse_second_derivative
from limbeck.kernels.workers import Scratch, run_tasks

SOURCE = Path(__file__).with_suffix(".c")
OPTIONS = ("-O3", "-march=native", "-fPIC", "-shared")
# Longer samples without dropout go forward by PyTorch's fast attention, whose products run in bfloat16.
FORWARD_TO = 64
# Scores that a thread has in work.
BLOCK = 1 << 15
# Tasks of a thread, so that none waits long for another.
TASKS = 4
_LANES = 16
_SECONDS = 120
_SCRATCH = Scratch()


class _Operand(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("token", ctypes.c_int64), ("head", ctypes.c_int64))


class _Attention(ctypes.Structure):
    """`attention` of the source."""

    _fields_ = (
        *((name, _Operand) for name in ("query", "key", "value", "upstream")),
        *((name, ctypes.c_void_p) for name in ("context", "of_query", "of_key", "of_value", "samples")),
        *((name, ctypes.c_int64) for name in ("heads", "depth", "block")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_uint32) for name in ("dropped", "seed")),
    )


class Kernel(NamedTuple):
    """The compiled functions, or the reason why there are none.

    Attributes:
        attend: Computes contexts of some samples.
        differentiate: Computes gradients of some samples.
        obstacle: Why neither is there; empty if they are.
    """

    attend: Callable[..., None] | None = None
    differentiate: Callable[..., None] | None = None
    obstacle: str = ""


@lru_cache(maxsize=1)
def kernel() -> Kernel:
    """Compile the kernel, or find it in the cache; a compiler that is missing or fails is an obstacle, no error."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    processor = Path("/proc/cpuinfo")
    if (found := shutil.which(compiler[0])) is None or not processor.is_file():
        return Kernel(obstacle=f"no C compiler '{compiler[0]}'" if found is None else "it is compiled on Linux only")
    traits = sorted({line for line in processor.read_text().splitlines() if line.startswith(("flags", "Features"))})
    key = fingerprint([SOURCE.read_text(encoding="utf-8"), compiler, os.path.realpath(found), OPTIONS, traits])
    library = default_cache_dir() / "kernels" / f"attention-{key}.so"
    try:
        if not library.is_file():
            library.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(library, durable=False, shared=True) as partial_file:
                command = [*compiler, *OPTIONS, str(SOURCE), "-o", str(partial_file)]
                subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        loaded = ctypes.CDLL(str(library))
        made = Kernel(_function(loaded, "attend"), _function(loaded, "differentiate"))
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return Kernel(obstacle=f"'{compiler[0]}' did not compile it ({type(error).__name__})")
    return made if _is_right(made) else Kernel(obstacle=f"what '{compiler[0]}' made of it computes something else")


def _function(library: ctypes.CDLL, name: str) -> Callable[..., None]:
    function = getattr(library, name)
    function.argtypes = (ctypes.POINTER(_Attention), ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    function.restype = None
    found: Callable[..., None] = function
    return found


def _is_right(made: Kernel) -> bool:
    """Whether the kernel computes attention, by one sample."""
    row = torch.arange(2 * 19 * 5, dtype=torch.float32).view(2, 19, 5).mul(0.37).sin().bfloat16()
    plan = _plan((19,), 0.4, 0.0, 0)
    found, wanted = row.new_full((19, 2, 5), torch.nan), F.scaled_dot_product_attention(row, row, row, scale=0.4)
    _Work(row, row, row, found, plan).attend(made)
    return bool((found.transpose(0, 1) - wanted).abs().max() < 0.05)


def compiled_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], *, scale: float, dropout: float
) -> Tensor | None:
    """Attend within each sample of a packed row; None where the kernel cannot: see `packed_attention`.

    Args:
        query: `[A, T, D]`, bfloat16 on a CPU, like `key` and `value`.
        key: Like `query`.
        value: Like `query`.
        lengths: Tokens of each sample, 1 or more; they add up to T.
        scale: Factor of the scores.
        dropout: Probability that a probability is set to 0, below 1.

    Returns:
        `[T, A, D]`; scores are computed in float32. It has a first derivative only.
    """
    alike = {x.dtype for x in (query, key, value)} == {torch.bfloat16} and query.shape == value.shape
    if not alike or kernel().obstacle:
        return None
    plan = _plan(lengths, scale, dropout, draw_seed() if dropped_share(dropout) else 0)
    context: Tensor = _CompiledAttention.apply(query, key, value, plan)
    return context


@dataclass(frozen=True)
class _Division:
    """Samples, the short ones first, and what of them a thread does at once.

    Attributes:
        samples: First token and length of each, int64 `[samples, 2]`.
        longest: Length of the last.
        short: How many have at most `FORWARD_TO` tokens.
        of_short: Ranges of the short ones.
        of_all: Ranges of all.
    """

    samples: Tensor
    longest: int
    short: int
    of_short: Sequence[tuple[int, int]]
    of_all: Sequence[tuple[int, int]]


@lru_cache(maxsize=8)
def _divide(lengths: tuple[int, ...], parts: int) -> _Division:
    """Divide samples into ranges that take about the same time, so many of each kind at most."""
    starts = accumulate(lengths, initial=0)
    samples = sorted(zip(starts, lengths, strict=False), key=lambda sample: sample[1])
    costs = [length * (length + FORWARD_TO) for _, length in samples]
    short = sum(length <= FORWARD_TO for length in lengths)
    return _Division(torch.tensor(samples), max(lengths), short, _ranges(costs[:short], parts), _ranges(costs, parts))


def _ranges(costs: Sequence[int], parts: int) -> list[tuple[int, int]]:
    ranges, first, taken = [], 0, 0
    for last, cost in enumerate(costs, 1):
        taken += cost
        if taken * parts >= sum(costs) or last == len(costs):
            ranges.append((first, last))
            first, taken = last, 0
    return ranges


class _Plan(NamedTuple):
    """How attention is computed."""

    division: _Division
    scale: float
    dropout: float
    seed: int


def _plan(lengths: Sequence[int], scale: float, dropout: float, seed: int) -> _Plan:
    return _Plan(_divide(tuple(lengths), TASKS * torch.get_num_threads()), scale, dropout, seed)


class _CompiledAttention(torch.autograd.Function):
    """Joins the kernel to autograd; saved are the operands, the result and the plan with its seed."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: _Plan) -> Tensor:
        context = value.new_empty(value.shape[1], value.shape[0], value.shape[2])
        _Work(query, key, value, context, plan).attend(kernel())
        ctx.save_for_backward(query, key, value, context)
        ctx.plan = plan
        return context

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(
            "Attention of packed samples on a CPU", "train in float32, with the student's dropout at 0"
        )
        query, key, value, context = ctx.saved_tensors
        # Laid out as the projections gave them, so that heads are joined again without a copy.
        grads = [torch.empty_like(context) for _ in range(3)]
        work = _Work(query, key, value, context, ctx.plan)
        work.differentiate(kernel(), upstream, grads)
        return *(x.transpose(0, 1) for x in grads), None


class _Work:
    """Operands as the kernel is given them.

    Args:
        query: `[A, T, D]`.
        key: Like `query`.
        value: Like `query`.
        context: The result, `[T, A, D]`.
        plan: How attention is computed.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, context: Tensor, plan: _Plan) -> None:
        self.operands = [_dense(x.transpose(0, 1)) for x in (query, key, value)]
        self.context, self.plan = context, plan
        division = plan.division
        padded, width = (-(-size // _LANES) * _LANES for size in (division.longest, context.shape[-1]))
        self.operand, self.block = padded * width, max(BLOCK, padded)
        self.given = _Attention(
            *map(_operand, self.operands),
            context=context.data_ptr(),
            samples=division.samples.data_ptr(),
            heads=context.shape[1],
            depth=context.shape[2],
            block=self.block,
            scale=plan.scale,
            dropped=round(dropped_share(plan.dropout) * (1 << 16)),
            seed=plan.seed % (1 << 32),
        )

    def attend(self, made: Kernel) -> None:
        """Write the context."""
        division, scale = self.plan.division, self.plan.scale
        fast = not dropped_share(self.plan.dropout)
        assert made.attend is not None
        size = 5 * self.operand + self.block
        ranges = division.of_short if fast else division.of_all
        tasks = [partial(self._run, made.attend, size, *own) for own in ranges]
        if fast:
            long = division.samples[division.short :].tolist()
            tasks = [partial(self._attend_fast, slice(start, start + length), scale) for start, length in long] + tasks
        run_tasks(tasks)

    def differentiate(self, made: Kernel, upstream: Tensor, grads: Sequence[Tensor]) -> None:
        """Write the gradients of the operands, each `[T, A, D]`."""
        upstream = _dense(upstream)
        self.given.upstream = _operand(upstream)
        self.given.of_query, self.given.of_key, self.given.of_value = (x.data_ptr() for x in grads)
        assert made.differentiate is not None
        size = 10 * self.operand + 2 * self.block
        run_tasks([partial(self._run, made.differentiate, size, *own) for own in self.plan.division.of_all])

    def _run(self, function: Callable[..., None], scratch: int, first: int, last: int) -> None:
        memory = _SCRATCH.take("attention", (scratch,), self.context, torch.float32)
        function(ctypes.byref(self.given), first, last, memory.data_ptr())

    def _attend_fast(self, tokens: slice, scale: float) -> None:
        query, key, value = (x[tokens].transpose(0, 1)[None] for x in self.operands)
        self.context[tokens] = F.scaled_dot_product_attention(query, key, value, scale=scale)[0].transpose(0, 1)


def _dense(operand: Tensor) -> Tensor:
    """Return an operand `[T, A, D]` whose last axis lies in one piece."""
    return operand if operand.stride(-1) == 1 else operand.contiguous()


def _operand(of: Tensor) -> _Operand:
    return _Operand(of.data_ptr(), of.stride(0), of.stride(1))
