"""`relation_kl` of vectors in bfloat16 by a kernel in C, compiled at first use where a C compiler is found.

The logits of a relation head are products over 8 to 64 numbers. In PyTorch it takes far longer to move them through a
dozen operations than to compute the products. The kernel computes value and gradient of a head of a sample together, in
float32 and in memory that stays in cache. The formulas are those of `relation_blocked`, with exp in place of exp2.
Value and gradient use the same logits, so that no rounding can differ between them. Without the kernel a whole step
takes 1.2 to 1.4 times as long (benchmarks/results/kernel_steps.json).
"""

import ctypes
import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.kernels.cpu.compiling import TILE, compile_kernel, whole_vectors
from limbeck.kernels.cpu.team import TeamKernel, as_pairs, divide_work
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.kernels.relation_vectors import RelationGrads, RelationVectors
from limbeck.kernels.workers import Scratch

SOURCE = Path(__file__).with_suffix(".c")
# Most numbers of a head. Wider heads spend most time in the products, which are faster in PyTorch.
DEPTH_TO = 96
# Most logits of each model that a thread works on at a time.
BLOCK = 1 << 14
# Parts of the work for each thread, so that at the end none waits long for another.
TASKS = 4
_SCRATCH = Scratch()


class _Stream(ctypes.Structure):
    """The struct `stream` of the source: the address of a tensor `[B, L, width]`, and its strides."""

    _fields_ = (("data", ctypes.c_void_p), ("sample", ctypes.c_int64), ("token", ctypes.c_int64))


class _Relation(ctypes.Structure):
    """The struct `relation` of the source, field by field."""

    _fields_ = (
        ("student_a", _Stream),
        ("student_b", _Stream),
        ("teacher_a", _Stream),
        ("teacher_b", _Stream),
        ("grad_a", ctypes.c_void_p),
        ("grad_b", ctypes.c_void_p),
        ("samples", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("tokens", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("student_depth", ctypes.c_int64),
        ("teacher_depth", ctypes.c_int64),
        ("student_scale", ctypes.c_float),
        ("teacher_scale", ctypes.c_float),
        ("block", ctypes.c_int64),
    )


def compiled_relation(
    student: RelationVectors, teacher: RelationVectors, grads: RelationGrads, heads: int, valid: Tensor | None
) -> Tensor | None:
    """Compute the divergence of two models' relations by the compiled kernel, and write its gradient.

    Args:
        student: The student's vectors, `[B, L, width_S]`.
        teacher: The teacher's vectors, `[B, L, width_T]`.
        grads: Receive the gradients of the student's vectors; zeros, float32.
        heads: Relation heads; divides all widths.
        valid: Real tokens, bool `[B, L]`; None means all.

    Returns:
        Σ KL over samples, heads and valid rows, a scalar in nats, float64; None for vectors that are not in bfloat16,
        wide heads or an empty batch, and where there is no compiled kernel.
    """
    for vectors in (*student, *teacher):
        if vectors.dtype != torch.bfloat16 or vectors.shape[-1] > DEPTH_TO * heads:
            return None
    if student.a.numel() == 0:
        return None
    relate = kernel_or_reason()
    if isinstance(relate, str):
        # This is the reason why there is no kernel, such as a missing compiler.
        return None
    return _compute(relate, student, teacher, grads, heads, valid)


@lru_cache(maxsize=1)
def kernel_or_reason() -> TeamKernel | str:
    """Return the kernel, compiled or from the cache, or the reason why there is none, which is no error."""
    return compile_kernel(SOURCE, _read_kernel, _is_right)


def _read_kernel(library: ctypes.CDLL) -> TeamKernel:
    """Find the function in the compiled library."""
    return TeamKernel.read(library, "relate")


def _is_right(relate: TeamKernel) -> bool:
    """Return whether the kernel computes a relation and its gradients of two small samples as the reference does."""
    # Numbers between -1 and 1 without a pattern, [vectors, samples, tokens, width]. No size is a multiple of a vector
    # register's, and each sample has padding.
    numbers = torch.arange(4 * 2 * 19 * 10).mul(0.37).sin().view(4, 2, 19, 10)
    student_a, student_b, teacher_a, teacher_b = (vectors.bfloat16() for vectors in numbers)
    valid = torch.arange(19) < torch.tensor([[17], [5]])
    heads = 2
    with torch.enable_grad():
        leaf_a = student_a.float().requires_grad_()
        leaf_b = student_b.float().requires_grad_()
        expected = relation_kl_reference(leaf_a, leaf_b, teacher_a, teacher_b, heads, valid)
        expected_a, expected_b = torch.autograd.grad(expected, (leaf_a, leaf_b))

    grad_a = torch.zeros_like(expected_a)
    grad_b = torch.zeros_like(expected_b)
    student = RelationVectors(student_a, student_b)
    teacher = RelationVectors(teacher_a, teacher_b)
    total = _compute(relate, student, teacher, RelationGrads(grad_a, grad_b), heads, valid)
    return _is_near(total, expected.detach()) and _is_near(grad_a, expected_a) and _is_near(grad_b, expected_b)


def _is_near(result: Tensor, expected: Tensor) -> bool:
    """Whether two tensors agree up to the rounding of float32."""
    return bool((result - expected).norm() < 1e-4 * expected.norm())


def _compute(
    relate: TeamKernel,
    student: RelationVectors,
    teacher: RelationVectors,
    grads: RelationGrads,
    heads: int,
    valid: Tensor | None,
) -> Tensor:
    """Run the kernel; arguments and result as of `compiled_relation`."""
    batch, tokens, _ = student.a.shape
    lengths = (tokens,) * batch
    places = None
    if valid is not None:
        lengths = tuple(valid.sum(1).tolist())
        # A stable sort puts each sample's valid tokens first, in their order.
        places = torch.sort(~valid, dim=1, stable=True).indices
    division = _divide_heads(lengths, heads, TASKS * torch.get_num_threads())

    # The kernel gets addresses alone, so these names keep the tensors alive.
    student = _vectors_with_contiguous_last_axis(student)
    teacher = _vectors_with_contiguous_last_axis(teacher)
    # Three numbers for each head of each sample, see below.
    sums = torch.zeros(len(division.samples) * heads, 3, dtype=torch.float64)
    student_depth = student.a.shape[-1] // heads
    teacher_depth = teacher.a.shape[-1] // heads
    # Float32 numbers of a row of logits, and of a block of logits.
    row_size = whole_vectors(division.longest)
    block_size = max(BLOCK, TILE * row_size)
    arguments = _Relation(
        student_a=_describe_stream(student.a),
        student_b=_describe_stream(student.b),
        teacher_a=_describe_stream(teacher.a),
        teacher_b=_describe_stream(teacher.b),
        grad_a=_address(grads.a),
        grad_b=_address(grads.b),
        samples=_address(division.samples),
        places=_address(places),
        sums=_address(sums),
        tokens=tokens,
        heads=heads,
        student_depth=student_depth,
        teacher_depth=teacher_depth,
        student_scale=1 / math.sqrt(student_depth),
        teacher_scale=1 / math.sqrt(teacher_depth),
        block=block_size,
    )
    # The scratch that `relate` of the source asks for: five operands of the student's size, one of the teacher's, and
    # two blocks of logits.
    student_size = row_size * whole_vectors(student_depth)
    teacher_size = row_size * whole_vectors(teacher_depth)
    scratch_size = 5 * student_size + teacher_size + 2 * block_size
    relate.run(arguments, division.parts, scratch_size, _SCRATCH)
    # KL = Σ p_T · D + log(s_S / s_T) over the rows of a head, see `relation_blocked`. The kernel gives the first sum,
    # and the product of all s_S / s_T as m · 2ⁿ, whose logarithm is log m + n log 2.
    weighted, factors, powers = sums.unbind(1)
    return (weighted + factors.log() + powers * math.log(2)).sum()


def _vectors_with_contiguous_last_axis(vectors: RelationVectors) -> RelationVectors:
    """Return vectors whose last axis is contiguous; where b is a, it stays the same tensor."""
    a = _with_contiguous_last_axis(vectors.a)
    b = a if vectors.is_symmetric else _with_contiguous_last_axis(vectors.b)
    return RelationVectors(a, b)


def _with_contiguous_last_axis(stream: Tensor) -> Tensor:
    """Return a stream whose last axis is contiguous, a copy if it has to be."""
    return stream if stream.stride(-1) == 1 else stream.contiguous()


def _address(tensor: Tensor | None) -> int | None:
    """The address of a tensor's numbers; None, a null pointer in C, for no tensor."""
    return None if tensor is None else tensor.data_ptr()


def _describe_stream(tensor: Tensor) -> _Stream:
    """Describe a tensor `[B, L, width]` whose last axis is contiguous."""
    return _Stream(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))


class _Division(NamedTuple):
    """The division of a batch's work among threads.

    The heads of all samples are numbered through, sample by sample. A thread takes a range of these numbers at a time.

    Attributes:
        samples: Index and length of each sample that has tokens, int64 `[samples, 2]`.
        longest: Length of the longest sample.
        parts: Ranges of heads, int64 `[ranges, 2]`.
    """

    samples: Tensor
    longest: int
    parts: Tensor


@lru_cache(maxsize=8)
def _divide_heads(lengths: tuple[int, ...], heads: int, parts: int) -> _Division:
    """Divide all heads into ranges that take about the same time.

    Args:
        lengths: Tokens of each sample.
        heads: Relation heads.
        parts: Most ranges.
    """
    samples = []
    # A head costs about the square of its sample's length.
    costs = []
    for sample, length in enumerate(lengths):
        if length:
            samples.append((sample, length))
            costs += [length**2] * heads
    ranges = divide_work(costs, parts)
    return _Division(as_pairs(samples), max(lengths, default=0), ranges)
