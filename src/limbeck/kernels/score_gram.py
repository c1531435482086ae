"""Squared distance of two score matrices Q Kᵀ, a chunk of a batch at a time.

Long texts: the Gram identity, linear in the length, with s = 1/√d and s' = 1/√d',
    ‖s Q Kᵀ − s' Q' K'ᵀ‖² = s² ⟨QᵀQ, KᵀK⟩ − 2 s s' ⟨QᵀQ', KᵀK'⟩ + s'² ⟨Q'ᵀQ', K'ᵀK'⟩.
Near the teacher it subtracts large numbers, and their rounding stays. It is computed in float64, which leaves more
digits than streams in float32 have to give.
Short texts: the difference of the scores itself, in blocks, which is less work there (a Gram matrix has d² entries, a
score matrix L²). Streams in float64 take this way too: the identity would need more.
"""

import math
from collections.abc import Sequence
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
    given_dtype, device = compute_dtype(*streams), student_q.device
    batch, length, width = student_q.shape
    sizes = (width + teacher_q.shape[-1]) // heads
    direct = given_dtype == torch.float64 or length < SHORT * sizes
    dtype = given_dtype if direct or device.type == "mps" else torch.float64  # "mps" has no float64.
    wanted, scratch = any(wanted_gradients(*streams[:2])), Scratch()

    def compute(chunk: slice) -> Tensor:
        """Distance of some samples; writes their gradient."""
        operands = []
        for name, x in zip(("q", "k", "other q", "other k"), streams, strict=True):
            given = x[chunk] if valid is None else x[chunk].masked_fill(~valid[chunk, :, None], 0.0)
            by_head = given.unflatten(-1, (heads, -1)).transpose(1, 2)
            operands.append(scratch.take(name, by_head.shape, x, dtype).copy_(by_head).flatten(0, 1))
        made = [scratch.take(f"gradient {i}", operands[i].shape, x, dtype) for i, x in enumerate(grads)]
        scales = [1 / math.sqrt(x.shape[-1]) for x in (operands[0], operands[2])]
        total = (_by_scores if direct else _by_identity)(operands, scales, made)
        for target, grad in zip(grads, made, strict=True):
            # ∂/∂Q = 2 s (difference) K and ∂/∂K = 2 s (difference)ᵀ Q.
            by_head = grad.mul_(2 * scales[0]).unflatten(0, (-1, heads)).transpose(1, 2)
            target[chunk].unflatten(-1, (heads, -1)).copy_(by_head)
        return total

    with torch.no_grad(), autocast_off(device):
        grads = [x.new_empty(x.shape, dtype=given_dtype) for x in streams[:2]] if wanted else []
        numbers = heads * length * length if direct else length * max(width, teacher_q.shape[-1])
        step = max(1, _chunk_of(device) // max(1, numbers))
        chunks = (slice(start, min(start + step, batch)) for start in range(0, batch, step))
        totals = run_tasks([partial(compute, chunk) for chunk in chunks], device.type)
        total = (torch.stack(totals).sum() if totals else student_q.new_zeros(())).to(given_dtype)
    way_out = "leave it out of what is differentiated twice"
    return with_gradients(total, streams[:2] if wanted else (), grads, "attention_score_mse", way_out)


def _chunk_of(device: torch.device) -> int:
    return CHUNK if device.type == "cpu" else DEVICE_CHUNK


def _by_identity(operands: Sequence[Tensor], scales: Sequence[float], grads: Sequence[Tensor]) -> Tensor:
    """Squared distance of `q, k, other q, other k`, all `[units, L, d]`; (difference) K and (difference)ᵀ Q."""
    (q, k, other_q, other_k), (own, other) = operands, scales
    q_q, q_other = torch.bmm(q.mT, q), torch.bmm(q.mT, other_q)
    k_k, k_other = torch.bmm(k.mT, k), torch.bmm(k.mT, other_k)
    constant = (torch.bmm(other_q.mT, other_q) * torch.bmm(other_k.mT, other_k)).sum()
    if grads:
        # (difference) K = s Q KᵀK − s' Q' K'ᵀK, and the same with Q and K exchanged.
        torch.bmm(q, k_k, out=grads[0]).mul_(own).baddbmm_(other_q, k_other.mT, alpha=-other)
        torch.bmm(k, q_q, out=grads[1]).mul_(own).baddbmm_(other_k, q_other.mT, alpha=-other)
    total = own**2 * (q_q * k_k).sum() - 2 * own * other * (q_other * k_other).sum() + other**2 * constant
    # Rounding must not make a square negative.
    return total.clamp(min=0)


def _by_scores(operands: Sequence[Tensor], scales: Sequence[float], grads: Sequence[Tensor]) -> Tensor:
    """The same from the differences of the scores, a block of rows at a time."""
    (q, k, other_q, other_k), (own, other) = operands, scales
    total = sum_accumulator(q.device)
    units, length, _ = q.shape
    rows_most = max(1, _chunk_of(q.device) // max(1, units * length))
    for top in range(0, length, rows_most):
        rows = slice(top, top + rows_most)
        # Both in the same operations: where the models agree, so does the rounding.
        difference, others = (
            torch.bmm(x[:, rows], y.mT).mul_(scale) for x, y, scale in ((q, k, own), (other_q, other_k, other))
        )
        difference -= others
        if grads:
            grads[0][:, rows] = torch.bmm(difference, k)
            part = torch.bmm(difference.mT, q[:, rows])
            grads[1].copy_(part) if top == 0 else grads[1].add_(part)
        total += difference.square_().sum(-1).sum(dtype=total.dtype)
    return total
