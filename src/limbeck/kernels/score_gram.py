"""Squared distance of two score matrices Q Kᵀ, a chunk of a batch at a time.

Letters: B samples, L tokens, A heads; d and d' are the student's and the teacher's head size, s = 1/√d and s' = 1/√d'.
Q, K are the student's queries and keys of a head, Q', K' the teacher's. A *unit* is one head of one sample.

There are two ways to compute it. Long texts take the Gram identity, whose time is linear in the length:
    ‖s Q Kᵀ − s' Q' K'ᵀ‖² = s² ⟨QᵀQ, KᵀK⟩ − 2 s s' ⟨QᵀQ', KᵀK'⟩ + s'² ⟨Q'ᵀQ', K'ᵀK'⟩.
Where the student is near its teacher, it subtracts large numbers that nearly cancel, so that their rounding errors
remain. It is computed in float64, in which these are smaller than the rounding of streams in float32.
Short texts take the difference of the scores itself, in blocks of rows. This is less work for them, since a Gram matrix
has d² entries and a score matrix L². Streams in float64 take this way too, since the identity would need more digits,
and so do devices without float64: in float32 the identity of streams that differ by a ten-thousandth gives several
times the distance.

**Rounding.** Let E be the difference of the scores, so that the distance is ‖E‖², and N = ‖Q‖ ‖K‖/√d, at least the norm
of the scores. Let u = 2⁻²⁴ and v = 2⁻⁵³ be the roundoffs of float32 and float64. Scores in float32 are wrong by about
u N, and the distance by 2 u ‖E‖ N + u² N². The three terms of the identity are at most N² each and wrong by about v N²,
and so is their sum. Since 6 v < u², this is less than the second part of the other error alone, however near the models
are and whatever offset their vectors share. The gradient s Q (KᵀK) − s' Q' (K'ᵀK) is wrong by about v N ‖K‖, where the
one of the scores is wrong by u N ‖K‖.

A loss at L = 512 takes 0.16 times as long as with all scores in memory, in 0.14 times its memory
(benchmarks/results/attention_score_mse.json).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from limbeck.kernels.precision import (
    autocast_off,
    compute_dtype,
    has_float64,
    sum_accumulator,
    wanted_gradients,
    with_gradients,
)
from limbeck.kernels.workers import Scratch, left_uncompiled, run_tasks

# Most numbers of an operand, or most scores, that a task works on at a time. On a CPU they stay in cache; on an
# accelerator fewer launches matter more.
CHUNK = 1 << 18
DEVICE_CHUNK = 1 << 24
# The identity is faster from a length of SHORT · (d + d') tokens on (measured on a CPU).
SHORT = 3.5


@left_uncompiled
def score_distance(
    student_q: Tensor, student_k: Tensor, teacher_q: Tensor, teacher_k: Tensor, heads: int, valid: Tensor | None = None
) -> Tensor:
    """Σ (Q Kᵀ/√d − Q'K'ᵀ/√d')² over samples, heads and pairs of valid tokens.

    For long texts, time grows with B · L · width² / heads and memory with B · L · width. The gradient is computed in
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
    device = student_q.device
    batch, length, student_width = student_q.shape
    teacher_width = teacher_q.shape[-1]
    result_dtype = compute_dtype(student_q, student_k, teacher_q, teacher_k)
    head_sizes = (student_width + teacher_width) // heads
    is_short = length < SHORT * head_sizes
    # The identity needs more digits than the streams have.
    has_more_digits = result_dtype != torch.float64 and has_float64(device)
    by_scores = is_short or not has_more_digits
    work_dtype = result_dtype if by_scores else torch.float64

    wants_gradient = any(wanted_gradients(student_q, student_k))
    with torch.no_grad(), autocast_off(device):
        grads: _StudentGrads | None = None
        if wants_gradient:
            grads = _StudentGrads(
                q=student_q.new_empty(student_q.shape, dtype=result_dtype),
                k=student_k.new_empty(student_k.shape, dtype=result_dtype),
            )
        distance = _Distance(
            streams=_Streams(student_q, student_k, teacher_q, teacher_k),
            grads=grads,
            heads=heads,
            valid=valid,
            dtype=work_dtype,
            compute_units=_distance_by_scores if by_scores else _distance_by_gram_identity,
            scratch=Scratch(),
        )

        # A task has as many samples as a chunk holds, one at least.
        numbers_of_a_sample = length * max(student_width, teacher_width)
        if by_scores:
            numbers_of_a_sample = heads * length * length
        samples_at_once = max(1, _most_scores_at_once(device) // max(1, numbers_of_a_sample))
        tasks = []
        for first in range(0, batch, samples_at_once):
            samples = slice(first, min(first + samples_at_once, batch))
            tasks.append(partial(distance.compute, samples))
        totals = run_tasks(tasks, device.type)
        total = student_q.new_zeros((), dtype=work_dtype)
        if totals:
            total = torch.stack(totals).sum()
    total = total.to(result_dtype)
    if grads is None:
        return total
    return with_gradients(
        total,
        (student_q, student_k),
        grads,
        objective="attention_score_mse",
        way_out="leave it out of what is differentiated twice",
    )


class _Streams(NamedTuple):
    """Queries and keys of both models: `[B, L, width]`, or by unit `[units, L, d]`."""

    q: Tensor
    k: Tensor
    teacher_q: Tensor
    teacher_k: Tensor


class _StudentGrads(NamedTuple):
    """Gradients of the student's queries and keys, shaped as these, to be written."""

    q: Tensor
    k: Tensor


_ComputeUnits: TypeAlias = Callable[[_Streams, float, float, _StudentGrads | None], Tensor]
"""Computes the distance of some units; see `_distance_by_gram_identity`."""


@dataclass(frozen=True)
class _Distance:
    """A distance to compute, a chunk of samples at a time.

    Args:
        streams: `[B, L, width]` each.
        grads: `[B, L, width_S]` each; None where none is wanted.
        heads: Attention heads of both.
        valid: Real tokens, bool `[B, L]`; None means all.
        dtype: Dtype of the computation.
        compute_units: Computes the distance of some units, by the identity or by scores.
        scratch: Memory to compute in.
    """

    streams: _Streams
    grads: _StudentGrads | None
    heads: int
    valid: Tensor | None
    dtype: torch.dtype
    compute_units: _ComputeUnits
    scratch: Scratch

    def compute(self, samples: slice) -> Tensor:
        """Return the distance of some samples, and write their gradient into `grads`, if there is one."""
        streams = self.streams
        units = _Streams(
            q=self._take_units("student q", streams.q, samples),
            k=self._take_units("student k", streams.k, samples),
            teacher_q=self._take_units("teacher q", streams.teacher_q, samples),
            teacher_k=self._take_units("teacher k", streams.teacher_k, samples),
        )
        student_scale = 1 / math.sqrt(units.q.shape[-1])
        teacher_scale = 1 / math.sqrt(units.teacher_q.shape[-1])
        if self.grads is None:
            return self.compute_units(units, student_scale, teacher_scale, None)

        # [units, L, d].
        unit_grads = _StudentGrads(
            q=self.scratch.take("gradient of q", units.q.shape, units.q, self.dtype),
            k=self.scratch.take("gradient of k", units.k.shape, units.k, self.dtype),
        )
        total = self.compute_units(units, student_scale, teacher_scale, unit_grads)
        for grad, unit_grad in zip(self.grads, unit_grads, strict=True):
            # ∂/∂Q = 2 s (difference) K and ∂/∂K = 2 s (difference)ᵀ Q.
            unit_grad.mul_(2 * student_scale)
            # [units, L, d] -> [samples, L, A, d].
            by_token = unit_grad.unflatten(0, (-1, self.heads)).transpose(1, 2)
            grad[samples].unflatten(-1, (self.heads, -1)).copy_(by_token)
        return total

    def _take_units(self, name: str, stream: Tensor, samples: slice) -> Tensor:
        """Copy a stream of some samples by unit, `[units, L, d]`; 0 at padding."""
        part = stream[samples]
        if self.valid is not None:
            part = part.masked_fill(~self.valid[samples, :, None], 0.0)
        # [samples, L, width] -> [samples, A, L, d].
        by_head = part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.scratch.take(name, by_head.shape, stream, self.dtype).copy_(by_head).flatten(0, 1)


def _most_scores_at_once(device: torch.device) -> int:
    """Most scores that are held at a time on a device."""
    return CHUNK if device.type == "cpu" else DEVICE_CHUNK


def _distance_by_gram_identity(
    units: _Streams, student_scale: float, teacher_scale: float, unit_grads: _StudentGrads | None
) -> Tensor:
    """Compute the squared distance of some units by the Gram identity.

    Args:
        units: Q and K, `[units, L, d]` each, and Q' and K', `[units, L, d']` each.
        student_scale: s.
        teacher_scale: s'.
        unit_grads: Receive E K and Eᵀ Q with E = s Q Kᵀ − s' Q' K'ᵀ, `[units, L, d]` each; None where none is wanted.
    """
    q, k, teacher_q, teacher_k = units
    # Gram matrices of the student, [units, d, d], and of both models, [units, d, d'].
    q_q = torch.bmm(q.mT, q)
    k_k = torch.bmm(k.mT, k)
    q_teacher = torch.bmm(q.mT, teacher_q)
    k_teacher = torch.bmm(k.mT, teacher_k)
    # ⟨Q'ᵀQ', K'ᵀK'⟩, which does not depend on the student.
    constant = (torch.bmm(teacher_q.mT, teacher_q) * torch.bmm(teacher_k.mT, teacher_k)).sum()
    if unit_grads is not None:
        # E K = s Q (KᵀK) − s' Q' (K'ᵀK), and Eᵀ Q is the same with Q and K exchanged.
        torch.bmm(q, k_k, out=unit_grads.q).mul_(student_scale)
        unit_grads.q.baddbmm_(teacher_q, k_teacher.mT, alpha=-teacher_scale)
        torch.bmm(k, q_q, out=unit_grads.k).mul_(student_scale)
        unit_grads.k.baddbmm_(teacher_k, q_teacher.mT, alpha=-teacher_scale)

    total = student_scale**2 * (q_q * k_k).sum()
    total = total - 2 * student_scale * teacher_scale * (q_teacher * k_teacher).sum()
    total = total + teacher_scale**2 * constant
    # Rounding must not make a square negative.
    return total.clamp(min=0)


def _distance_by_scores(
    units: _Streams, student_scale: float, teacher_scale: float, unit_grads: _StudentGrads | None
) -> Tensor:
    """Compute the squared distance by the scores, a block of rows at a time.

    The arguments are those of `_distance_by_gram_identity`.
    """
    q, k, teacher_q, teacher_k = units
    unit_count, length, _ = q.shape
    total = sum_accumulator(q.device)
    rows_at_once = max(1, _most_scores_at_once(q.device) // max(1, unit_count * length))
    for first in range(0, length, rows_at_once):
        rows = slice(first, first + rows_at_once)
        # E, [units, rows, L]. Both scores are made by the same operations: where the models agree, E is exactly 0.
        difference = torch.bmm(q[:, rows], k.mT).mul_(student_scale)
        difference -= torch.bmm(teacher_q[:, rows], teacher_k.mT).mul_(teacher_scale)
        if unit_grads is not None:
            unit_grads.q[:, rows] = torch.bmm(difference, k)
            # Every block of rows adds to the gradient of all keys.
            part_of_k = torch.bmm(difference.mT, q[:, rows])
            if first == 0:
                unit_grads.k.copy_(part_of_k)
            else:
                unit_grads.k.add_(part_of_k)
        total += difference.square_().sum(-1).sum(dtype=total.dtype)
    return total
