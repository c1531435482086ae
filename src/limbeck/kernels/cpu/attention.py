"""Attention of packed samples in bfloat16 by a kernel in C, compiled at first use where a C compiler is found.

Over short samples, attention in PyTorch is a long chain of short operations, which take less time than their starts.
The kernel computes a head of a sample at a time, in memory that stays in cache. Products of bfloat16 are summed in
float32. Probabilities are in float32 and rounded to bfloat16 before they are multiplied with values, as PyTorch's are.
The backward pass computes probabilities and all sums again, so it need not round as the forward pass did.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.cpu.compiling import TILE, compile_kernel, whole_vectors
from limbeck.kernels.cpu.team import TeamKernel, as_pairs, divide_work
from limbeck.kernels.dropout import draw_seed, dropped_share
from limbeck.kernels.workers import Scratch, run_tasks

SOURCE = Path(__file__).with_suffix(".c")
_ANY_LENGTH = 1 << 30
# The time for a sample of n tokens is about n² + 160 n, in units of the time for one score.
_TOKENS_OF_A_START = 160
# Most scores that a thread works on at a time.
BLOCK = 1 << 15
# Parts of the work for each thread, so that at the end none waits long for another.
TASKS = 4
_SCRATCH = Scratch()


class _Operand(ctypes.Structure):
    """The struct `operand` of the source: the address of a tensor `[T, A, D]`, and its strides."""

    _fields_ = (("data", ctypes.c_void_p), ("token", ctypes.c_int64), ("head", ctypes.c_int64))


class _Attention(ctypes.Structure):
    """The struct `attention` of the source, field by field."""

    _fields_ = (
        ("query", _Operand),
        ("key", _Operand),
        ("value", _Operand),
        ("upstream", _Operand),
        ("context", ctypes.c_void_p),
        ("query_grad", ctypes.c_void_p),
        ("key_grad", ctypes.c_void_p),
        ("value_grad", ctypes.c_void_p),
        ("samples", ctypes.c_void_p),
        ("heads", ctypes.c_int64),
        ("depth", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("dropped", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
    )


class Kernel(NamedTuple):
    """The compiled functions.

    Attributes:
        attend: Computes contexts of heads of some samples.
        differentiate: Computes gradients of heads of some samples.
        forward_to: Length up to which samples without dropout are computed by `attend`; PyTorch's fast attention
            computes longer ones faster.
    """

    attend: TeamKernel
    differentiate: TeamKernel
    forward_to: int


@lru_cache(maxsize=1)
def kernel_or_reason() -> Kernel | str:
    """Return the kernel, compiled or from the cache, or the reason why there is none, which is no error."""
    return compile_kernel(SOURCE, _read_kernel, _is_right)


def _read_kernel(library: ctypes.CDLL) -> Kernel:
    """Find the functions in the compiled library."""
    attend = TeamKernel.read(library, "attend")
    differentiate = TeamKernel.read(library, "differentiate")
    return Kernel(attend, differentiate, _length_of_fast_forward(library))


def _length_of_fast_forward(library: ctypes.CDLL) -> int:
    """Return the length up to which the library's forward pass is faster than PyTorch's fast attention."""
    # Products of matrices take most of the time, so the length depends on the instructions for them. The library was
    # compiled with AMX, the processor's instructions for matrices, as PyTorch's products are.
    if library.multiplies_tiles():
        return _ANY_LENGTH
    # PyTorch has AMX, but the C compiler does not know it: PyTorch's products are many times as fast.
    if torch.cpu._is_amx_tile_supported():
        return 64
    # The library has instructions for bfloat16 vectors.
    if library.multiplies_pairs():
        return _ANY_LENGTH
    # Without either, its products are as slow as those of float32.
    return 160


def _is_right(kernel: Kernel) -> bool:
    """Return whether the kernel computes attention and its gradients of one small sample as PyTorch does."""
    heads = 2
    tokens = 19
    scale = 0.4
    # [A, T, D].
    row = torch.arange(heads * tokens * 5, dtype=torch.float32).view(heads, tokens, 5).mul(0.37).sin().bfloat16()
    with torch.enable_grad():
        query, key, value = (row.clone().requires_grad_() for _ in range(3))
        expected_context = F.scaled_dot_product_attention(query, key, value, scale=scale)
        expected_grads = torch.autograd.grad(expected_context, (query, key, value), row)

    # [T, A, D] each. They begin as NaN, which stays where the kernel writes nothing.
    context = row.new_full((tokens, heads, 5), torch.nan)
    grads = [torch.full_like(context, torch.nan) for _ in expected_grads]
    division = _divide_heads((tokens,), heads, kernel.forward_to, parts=1)
    work = CompiledPlan(kernel, division, scale=scale, dropout=0.0, seed=0).work(row, row, row)
    work.attend(context)
    work.differentiate(row.transpose(0, 1), grads)
    pairs = zip((context, *grads), (expected_context.detach(), *expected_grads), strict=True)
    return all(_is_near(result.transpose(0, 1), expected) for result, expected in pairs)


def _is_near(result: Tensor, expected: Tensor) -> bool:
    """Whether two tensors agree as well as bfloat16 allows; NaN agrees with nothing."""
    return bool((result - expected).abs().max() < 0.05)


def compiled_plan(
    query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], *, scale: float, dropout: float
) -> "CompiledPlan | None":
    """Return a plan of attention by the compiled kernel; None for operands that it cannot compute, or without a kernel.

    The arguments are those of `packed_attention`.
    """
    are_all_bfloat16 = {operand.dtype for operand in (query, key, value)} == {torch.bfloat16}
    # The kernel has a single width. Keys are as wide as queries in any attention, values may be of another width.
    if not are_all_bfloat16 or query.shape != value.shape:
        return None
    kernel = kernel_or_reason()
    if isinstance(kernel, str):
        # This is the reason why there is no kernel, such as a missing compiler.
        return None
    heads = query.shape[0]
    # Several ranges of heads for each thread, so that at the end none waits long for another.
    parts = TASKS * torch.get_num_threads()
    division = _divide_heads(tuple(lengths), heads, kernel.forward_to, parts)
    # The share that is dropped is rounded, and may be 0 where `dropout` is not.
    seed = draw_seed() if dropped_share(dropout) > 0 else 0
    return CompiledPlan(kernel, division, scale, dropout, seed)


@dataclass(frozen=True)
class _Division:
    """The division of a batch's work among threads.

    Samples are sorted by length, the shortest first. Their heads are numbered through, sample by sample. A thread takes
    a range of these numbers at a time.

    Attributes:
        samples: First token and length of each sample, int64 `[samples, 2]`.
        longest: Length of the longest sample, which is the last.
        short_count: Number of samples that are short enough for the kernel's forward pass, which are the first.
        short_parts: Ranges of the heads of these, int64 `[ranges, 2]`.
        all_parts: Ranges of the heads of all samples, int64 `[ranges, 2]`.
    """

    samples: Tensor
    longest: int
    short_count: int
    short_parts: Tensor
    all_parts: Tensor


@lru_cache(maxsize=8)
def _divide_heads(lengths: tuple[int, ...], heads: int, forward_to: int, parts: int) -> _Division:
    """Divide heads of samples into ranges that take about the same time.

    Args:
        lengths: Tokens of each sample.
        heads: Attention heads of each sample.
        forward_to: Length up to which a sample counts as short.
        parts: Most ranges of `short_parts`, and of `all_parts`.
    """
    # Pairs of the first token and the length of each sample, the shortest sample first.
    starts = accumulate(lengths[:-1], initial=0)
    samples = sorted(zip(starts, lengths, strict=True), key=lambda sample: sample[1])
    costs = []
    for _, length in samples:
        costs += [length * (length + _TOKENS_OF_A_START)] * heads
    short_count = sum(length <= forward_to for length in lengths)
    return _Division(
        samples=as_pairs(samples),
        longest=max(lengths),
        short_count=short_count,
        short_parts=divide_work(costs[: short_count * heads], parts),
        all_parts=divide_work(costs, parts),
    )


class CompiledPlan(NamedTuple):
    """Attention by the kernel.

    Attributes:
        kernel: The compiled functions.
        division: How the work is divided.
        scale: Factor of the scores.
        dropout: Probability that a probability is set to 0.
        seed: Seed of the keep factors (the dropout mask).
    """

    kernel: Kernel
    division: _Division
    scale: float
    dropout: float
    seed: int

    def work(self, query: Tensor, key: Tensor, value: Tensor) -> "CompiledWork":
        """Return the work of this plan on its operands, `[A, T, D]` each."""
        return CompiledWork(query, key, value, self)


class CompiledWork:
    """The work of a plan on its operands, with the arguments that the kernel gets.

    Args:
        query: `[A, T, D]`.
        key: Like `query`.
        value: Like `query`.
        plan: How attention is computed.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, plan: CompiledPlan) -> None:
        # [T, A, D]. The kernel gets addresses alone, so these attributes keep the tensors alive.
        self.query = _with_contiguous_last_axis(query.transpose(0, 1))
        self.key = _with_contiguous_last_axis(key.transpose(0, 1))
        self.value = _with_contiguous_last_axis(value.transpose(0, 1))
        self.plan = plan
        heads, _, depth = query.shape
        # Float32 numbers of a row of scores, of an operand of the longest sample, and of a block of scores.
        self.row_size = whole_vectors(plan.division.longest)
        self.operand_size = self.row_size * whole_vectors(depth)
        self.block_size = max(BLOCK, TILE * self.row_size)
        self.arguments = _Attention(
            query=_describe_operand(self.query),
            key=_describe_operand(self.key),
            value=_describe_operand(self.value),
            samples=plan.division.samples.data_ptr(),
            heads=heads,
            depth=depth,
            block=self.block_size,
            scale=plan.scale,
            dropped=round(dropped_share(plan.dropout) * (1 << 16)),
            seed=plan.seed % (1 << 32),
        )

    def attend(self, context: Tensor) -> None:
        """Write the context, `[T, A, D]`."""
        self.arguments.context = context.data_ptr()
        division = self.plan.division
        parts = division.all_parts
        if dropped_share(self.plan.dropout) == 0:
            # PyTorch's fast attention, which has no dropout, is faster for long samples.
            tasks = []
            for start, length in division.samples[division.short_count :].tolist():
                tasks.append(partial(self._attend_fast, context, slice(start, start + length)))
            run_tasks(tasks)
            parts = division.short_parts
        # Operands of the longest sample, its tokens, and blocks, as the comment above `attend` in attention.c says.
        scratch_size = 3 * self.operand_size + self.row_size + 2 * self.block_size
        self.plan.kernel.attend.run(self.arguments, parts, scratch_size, _SCRATCH)

    def differentiate(self, upstream: Tensor, grads: Sequence[Tensor]) -> None:
        """Write the gradients of the operands, each `[T, A, D]`.

        Args:
            upstream: The gradient of the context, `[T, A, D]`.
            grads: Receive those of query, key and value.
        """
        upstream = _with_contiguous_last_axis(upstream)
        query_grad, key_grad, value_grad = grads
        # The arguments have the operands and the settings already.
        self.arguments.upstream = _describe_operand(upstream)
        self.arguments.query_grad = query_grad.data_ptr()
        self.arguments.key_grad = key_grad.data_ptr()
        self.arguments.value_grad = value_grad.data_ptr()
        # Likewise, as the comment above `differentiate` says.
        scratch_size = 8 * self.operand_size + self.row_size + 3 * self.block_size
        self.plan.kernel.differentiate.run(self.arguments, self.plan.division.all_parts, scratch_size, _SCRATCH)

    def _attend_fast(self, context: Tensor, tokens: slice) -> None:
        """Write the context of one sample by PyTorch's fast attention."""
        # [1, A, tokens, D].
        query = self.query[tokens].transpose(0, 1)[None]
        key = self.key[tokens].transpose(0, 1)[None]
        value = self.value[tokens].transpose(0, 1)[None]
        result = F.scaled_dot_product_attention(query, key, value, scale=self.plan.scale)
        context[tokens] = result[0].transpose(0, 1)


def _with_contiguous_last_axis(operand: Tensor) -> Tensor:
    """Return an operand `[T, A, D]` whose last axis is contiguous, a copy if it has to be."""
    return operand if operand.stride(-1) == 1 else operand.contiguous()


def _describe_operand(tensor: Tensor) -> _Operand:
    """Describe a tensor `[T, A, D]` whose last axis is contiguous."""
    return _Operand(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))
