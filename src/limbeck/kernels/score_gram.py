"""Squared distance of two score matrices Q Kᵀ, a chunk of a batch at a time.

Long texts: the Gram identity, linear in the length, with s = 1/√d and s' = 1/√d',
    ‖s Q Kᵀ − s' Q' K'ᵀ‖² = s² ⟨QᵀQ, KᵀK⟩ − 2 s s' ⟨QᵀQ', KᵀK'⟩ + s'² ⟨Q'ᵀQ', K'ᵀK'⟩.
Near the teacher it subtracts large numbers, and their rounding stays. It is computed in float64, which leaves more
digits than streams in float32 have to give.
Short texts: the difference of the scores itself, in blocks, which is less work there (a Gram matrix has d² entries, a
score matrix L²). Streams in float64 take this way too: the identity would need more.

A loss at L = 512 takes 0.16 times as long as with all scores in memory, in 0.14 times its memory
(benchmarks/results/attention_score_mse.json).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from limbeck.kernels.precision import autocast_off, compute_dtype, sum_accumulator, wanted_gradients, with_gradients
from limbeck.kernels.workers import Scratch, left_uncompiled, run_tasks

# Numbers of one operand in float64, or scores, that a task has in work: on a CPU they stay in cache, and an accelerator
# wants few launches.
CHUNK = 1 << 18
DEVICE_CHUNK = 1 << 24
# The identity pays from this many tokens for each number of a student's and a teacher's head (measured on a CPU).
SHORT = 3.5


@left_uncompiled
def score_distance(
    student_q: Tensor, student_k: Tensor, teacher_q: Tensor, teacher_k: Tensor, heads: int, valid: Tensor | None = None
) -> Tensor:
    """Σ (Q Kᵀ/√d − Q'K'ᵀ/√d')² over samples, heads and pairs of valid tokens.

    Time and memory grow with B · L · width² / heads and B · L · width once texts are long; the gradient is made in
    the forward pass.

    Args:
        student_q: Queries of the student, `[B, L, width_S]`; carries gradient.
        student_k: Keys of the student, `[B, L, width_S]`; carries gradient.
        teacher_q: Queries of the teacher, `[B, L, width_T]`; constant.
        teacher_k: Keys of the teacher, `[B, L, width_T]`; constant.
        heads: Attention heads of both; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.

    Returns:
        A scalar, float64 where an input is float64 and float32 otherwise. It has a first derivative only.
    """
    streams = (student_q, student_k, teacher_q, teacher_k)
    device = student_q.device
    batch, length, student_width = student_q.shape
    teacher_width = teacher_q.shape[-1]
    result_dtype = compute_dtype(*streams)
    by_scores = result_dtype == torch.float64 or length < SHORT * ((student_width + teacher_width) // heads)
    dtype = torch.float64
    if by_scores or device.type == "mps":  # "mps" has no float64.
        dtype = result_dtype

    wants_gradient = any(wanted_gradients(student_q, student_k))
    with torch.no_grad(), autocast_off(device):
        grads: list[Tensor] = []
        if wants_gradient:
            grads = [x.new_empty(x.shape, dtype=result_dtype) for x in (student_q, student_k)]
        distance = _Distance(streams, grads, heads, valid, dtype, by_scores, Scratch())

        # As many samples at a time as a chunk holds.
        numbers_of_a_sample = length * max(student_width, teacher_width)
        if by_scores:
            numbers_of_a_sample = heads * length * length
        step = max(1, _chunk_of(device) // max(1, numbers_of_a_sample))
        tasks = [partial(distance.compute, slice(start, min(start + step, batch))) for start in range(0, batch, step)]
        totals = run_tasks(tasks, device.type)
        total = student_q.new_zeros((), dtype=dtype)
        if totals:
            total = torch.stack(totals).sum()
    way_out = "leave it out of what is differentiated twice"
    differentiated = streams[:2] if grads else ()
    return with_gradients(total.to(result_dtype), differentiated, grads, "attention_score_mse", way_out)


@dataclass(frozen=True)
class _Distance:
    """A distance to compute, a chunk of samples at a time.

    Args:
        streams: Queries and keys of the student and of the teacher, `[B, L, width]` each.
        grads: The gradients of the student's queries and keys, to be written; none where none is wanted.
        heads: Attention heads of both.
        valid: Real tokens, bool `[B, L]`; None means all.
        dtype: Of the computation.
        by_scores: Compute scores, rather than Gram matrices.
        scratch: Memory to compute in.
    """

    streams: Sequence[Tensor]
    grads: Sequence[Tensor]
    heads: int
    valid: Tensor | None
    dtype: torch.dtype
    by_scores: bool
    scratch: Scratch

    def compute(self, samples: slice) -> Tensor:
        """Return the distance of some samples, and write their gradient."""
        names = ("student q", "student k", "teacher q", "teacher k")
        operands = [self._operand(name, x, samples) for name, x in zip(names, self.streams, strict=True)]
        student_scale = 1 / math.sqrt(operands[0].shape[-1])
        teacher_scale = 1 / math.sqrt(operands[2].shape[-1])
        unit_grads = []
        if self.grads:
            for name, operand in zip(("gradient of q", "gradient of k"), operands[:2], strict=True):
                unit_grads.append(self.scratch.take(name, operand.shape, operand, self.dtype))
        compute = _by_scores if self.by_scores else _by_identity
        total = compute(operands, student_scale, teacher_scale, unit_grads)

        for target, unit_grad in zip(self.grads, unit_grads, strict=True):
            # ∂/∂Q = 2 s (difference) K and ∂/∂K = 2 s (difference)ᵀ Q.
            by_head = unit_grad.mul_(2 * student_scale).unflatten(0, (-1, self.heads)).transpose(1, 2)
            target[samples].unflatten(-1, (self.heads, -1)).copy_(by_head)
        return total

    def _operand(self, name: str, stream: Tensor, samples: slice) -> Tensor:
        """Copy a stream of some samples by head, `[samples · heads, L, d]`; 0 at padding."""
        part = stream[samples]
        if self.valid is not None:
            part = part.masked_fill(~self.valid[samples, :, None], 0.0)
        by_head = part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.scratch.take(name, by_head.shape, stream, self.dtype).copy_(by_head).flatten(0, 1)


def _chunk_of(device: torch.device) -> int:
    return CHUNK if device.type == "cpu" else DEVICE_CHUNK


def _by_identity(
    operands: Sequence[Tensor], student_scale: float, teacher_scale: float, grads: Sequence[Tensor]
) -> Tensor:
    """Squared distance by the Gram identity.

    Args:
        operands: Q, K, Q' and K', all `[units, L, d]`.
        student_scale: s.
        teacher_scale: s'.
        grads: Receive (difference) K and (difference)ᵀ Q; none where none is wanted.
    """
    q, k, teacher_q, teacher_k = operands
    q_q = torch.bmm(q.mT, q)
    k_k = torch.bmm(k.mT, k)
    q_teacher = torch.bmm(q.mT, teacher_q)
    k_teacher = torch.bmm(k.mT, teacher_k)
    constant = (torch.bmm(teacher_q.mT, teacher_q) * torch.bmm(teacher_k.mT, teacher_k)).sum()
    if grads:
        # (difference) K = s Q KᵀK − s' Q' K'ᵀK, and the same with Q and K exchanged.
        grad_q, grad_k = grads
        torch.bmm(q, k_k, out=grad_q).mul_(student_scale)
        grad_q.baddbmm_(teacher_q, k_teacher.mT, alpha=-teacher_scale)
        torch.bmm(k, q_q, out=grad_k).mul_(student_scale)
        grad_k.baddbmm_(teacher_k, q_teacher.mT, alpha=-teacher_scale)

    total = student_scale**2 * (q_q * k_k).sum()
    total = total - 2 * student_scale * teacher_scale * (q_teacher * k_teacher).sum()
    total = total + teacher_scale**2 * constant
    # Rounding must not make a square negative.
    return total.clamp(min=0)


def _by_scores(
    operands: Sequence[Tensor], student_scale: float, teacher_scale: float, grads: Sequence[Tensor]
) -> Tensor:
    """Squared distance of the scores themselves, a block of rows at a time; arguments as of `_by_identity`."""
    q, k, teacher_q, teacher_k = operands
    units, length, _ = q.shape
    total = sum_accumulator(q.device)
    rows_at_once = max(1, _chunk_of(q.device) // max(1, units * length))
    for top in range(0, length, rows_at_once):
        rows = slice(top, top + rows_at_once)
        # Both in the same operations: where the models agree, so does the rounding.
        difference = torch.bmm(q[:, rows], k.mT).mul_(student_scale)
        difference -= torch.bmm(teacher_q[:, rows], teacher_k.mT).mul_(teacher_scale)
        if grads:
            grad_q, grad_k = grads
            grad_q[:, rows] = torch.bmm(difference, k)
            part_of_k = torch.bmm(difference.mT, q[:, rows])
            if top == 0:
                grad_k.copy_(part_of_k)
            else:
                grad_k.add_(part_of_k)
        total += difference.square_().sum(-1).sum(dtype=total.dtype)
    return total
