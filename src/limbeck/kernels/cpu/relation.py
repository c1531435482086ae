"""`relation_kl` of vectors in bfloat16 by a kernel in C, compiled at first use where a C compiler is found.

The logits of a relation head are products over 8 to 64 numbers: in PyTorch moving them through a dozen operations
costs far more than the products. The kernel computes a head of a sample at a time, in float32 and in memory that stays
in cache, value and gradient in one go; the formulas are those of `relation_blocked`, with exp in place of exp2. Value
and gradient come of one product, so that no rounding can differ between them. Without it a whole step takes 1.2 to 1.4
times as long (benchmarks/results/kernel_steps.json).
"""

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.kernels.cpu.compiling import TILE, compile_kernel, whole_vectors
from limbeck.kernels.cpu.team import TeamKernel, as_pairs, divide_work
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.kernels.workers import Scratch

SOURCE = Path(__file__).with_suffix(".c")
# Wider heads are products above all, which PyTorch has faster.
DEPTH_TO = 96
# Logits that a thread has in work, of each model.
BLOCK = 1 << 14
# Tasks of a thread, so that none waits long for another.
TASKS = 4
_SCRATCH = Scratch()


class _Stream(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("sample", ctypes.c_int64), ("token", ctypes.c_int64))


class _Relation(ctypes.Structure):
    """`relation` of the source."""

    _fields_ = (
        *((name, _Stream) for name in ("student_a", "student_b", "teacher_a", "teacher_b")),
        *((name, ctypes.c_void_p) for name in ("of_a", "of_b", "samples", "places", "sums")),
        *((name, ctypes.c_int64) for name in ("tokens", "heads", "own", "other")),
        *((name, ctypes.c_float) for name in ("own_scale", "other_scale")),
        ("block", ctypes.c_int64),
    )


@lru_cache(maxsize=1)
def kernel() -> TeamKernel | str:
    """Return the kernel, compiled or from the cache, or the reason why there is none, which is no error."""
    return compile_kernel(SOURCE, _read, _is_right)


def _read(library: ctypes.CDLL) -> TeamKernel:
    return TeamKernel.read(library, "relate")


def _is_right(relate: TeamKernel) -> bool:
    """Whether the kernel computes a relation and its gradients, by two samples."""
    numbers = torch.arange(4 * 2 * 19 * 10).mul(0.37).sin().view(4, 2, 19, 10)
    student_a, student_b, teacher_a, teacher_b = (vectors.bfloat16() for vectors in numbers)
    valid = torch.arange(19) < torch.tensor([[17], [5]])
    with torch.enable_grad():
        leaf_a = student_a.float().requires_grad_()
        leaf_b = student_b.float().requires_grad_()
        wanted = relation_kl_reference(leaf_a, leaf_b, teacher_a, teacher_b, 2, valid)
        wanted_grads = torch.autograd.grad(wanted, (leaf_a, leaf_b))

    grads = [torch.zeros_like(x) for x in wanted_grads]
    total = _compute(relate, (student_a, student_b), (teacher_a, teacher_b), grads, 2, valid)
    pairs = zip((total, *grads), (wanted.detach(), *wanted_grads), strict=True)
    return all(bool((x - y).norm() < 1e-4 * y.norm()) for x, y in pairs)


def compiled_relation(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    heads: int,
    valid: Tensor | None,
) -> Tensor | None:
    """Compute a relation by the kernel, and write its gradient; None where it cannot compute it.

    Args:
        student: `(a, b)`, or `(a,)` when both are one, each `[B, L, width_S]`.
        teacher: The same of the teacher, `[B, L, width_T]`.
        grads: The gradient of each of `student`, zero so far, float32; None where none is wanted.
        heads: Relation heads; divides all widths.
        valid: Real tokens, bool `[B, L]`; None means all.

    Returns:
        Σ KL over samples, heads and valid rows, a scalar in nats, float64.
    """
    streams = (*student, *teacher)
    if any(x.dtype != torch.bfloat16 or x.shape[-1] > DEPTH_TO * heads for x in streams):
        return None
    if streams[0].numel() == 0:
        return None
    relate = kernel()
    if isinstance(relate, str):
        return None
    return _compute(relate, student, teacher, grads, heads, valid)


def _compute(
    relate: TeamKernel,
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    heads: int,
    valid: Tensor | None,
) -> Tensor:
    batch, tokens, _ = student[0].shape
    lengths = (tokens,) * batch
    places = None
    if valid is not None:
        lengths = tuple(valid.sum(1).tolist())
        # A stable sort puts each sample's valid tokens first, in their order.
        places = torch.sort(~valid, dim=1, stable=True).indices
    division = _divide(lengths, heads, TASKS * torch.get_num_threads())

    # These names keep the memory whose addresses the kernel is given.
    student = [_dense(x) for x in student]
    teacher = [_dense(x) for x in teacher]
    sums = torch.zeros(len(division.samples) * heads, 3, dtype=torch.float64)
    student_size = student[0].shape[-1] // heads
    teacher_size = teacher[0].shape[-1] // heads
    padded = whole_vectors(division.longest)
    block = max(BLOCK, TILE * padded)
    arguments = _Relation(
        student_a=_stream(student[0]),
        student_b=_stream(student[-1]),
        teacher_a=_stream(teacher[0]),
        teacher_b=_stream(teacher[-1]),
        of_a=_address(grads[0]),
        of_b=_address(grads[-1]),
        samples=_address(division.samples),
        places=_address(places),
        sums=_address(sums),
        tokens=tokens,
        heads=heads,
        own=student_size,
        other=teacher_size,
        own_scale=1 / math.sqrt(student_size),
        other_scale=1 / math.sqrt(teacher_size),
        block=block,
    )
    # Five operands of the student's, one of the teacher's, and two blocks of logits.
    scratch_size = padded * (5 * whole_vectors(student_size) + whole_vectors(teacher_size)) + 2 * block
    relate.run(arguments, division.parts, scratch_size, _SCRATCH)
    # Of each head of each sample Σ p_T D, and the product of s_S / s_T as m · 2ⁿ.
    weighted, factors, powers = sums.unbind(1)
    return (weighted + factors.log() + powers * math.log(2)).sum()


def _dense(stream: Tensor) -> Tensor:
    """Return a stream whose last axis lies in one piece."""
    return stream if stream.stride(-1) == 1 else stream.contiguous()


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _stream(tensor: Tensor) -> _Stream:
    return _Stream(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))


class _Division(NamedTuple):
    """Heads of samples, numbered sample by sample, and what of them a thread does at once.

    Attributes:
        samples: Index and length of each that has tokens, int64 `[samples, 2]`.
        longest: Length of the longest.
        parts: Ranges of heads, int64 `[ranges, 2]`.
    """

    samples: Tensor
    longest: int
    parts: Tensor


@lru_cache(maxsize=8)
def _divide(lengths: tuple[int, ...], heads: int, parts: int) -> _Division:
    """Divide all heads into ranges that take about the same time, so many at most."""
    samples = [(sample, length) for sample, length in enumerate(lengths) if length]
    ranges = divide_work([length**2 for _, length in samples for _ in range(heads)], parts)
    return _Division(as_pairs(samples), max(lengths, default=0), ranges)
