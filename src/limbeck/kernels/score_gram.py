"""Squared distance of two score matrices Q Kᵀ without making either: linear in the length.

With each model's scale 1/√d put into its queries, ΔQ = Q − Q' and ΔK = K − K' (the narrower model padded with
zeros), the difference of the scores is Q Kᵀ − Q' K'ᵀ = [ΔQ, Q'] [K, ΔK]ᵀ, so that
    ‖Q Kᵀ − Q' K'ᵀ‖² = ⟨ΔQᵀΔQ, KᵀK⟩ + 2⟨ΔQᵀQ', KᵀΔK⟩ + ⟨Q'ᵀQ', ΔKᵀΔK⟩.
This is the Gram identity ⟨QᵀQ, KᵀK⟩ − 2⟨QᵀQ', KᵀK'⟩ + ⟨Q'ᵀQ', K'ᵀK'⟩ in other coordinates. The usual ones subtract
large numbers when the student is near its teacher; here every term is small with the differences. A student can
also have its teacher's scores from other queries and keys; then terms cancel, so they are computed in float64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.precision import autocast_off, compute_dtype, refuse_second_derivative

# Numbers of one chunk of samples in float64 (8 MB): the copies stay in cache and do not add up over the batch.
CHUNK = 1 << 20


def score_distance(
    student_q: Tensor,
    student_k: Tensor,
    teacher_q: Tensor,
    teacher_k: Tensor,
    heads: int,
    valid: Tensor | None = None,
) -> Tensor:
    """Σ (Q Kᵀ/√d − Q'K'ᵀ/√d')² over samples, heads and pairs of valid tokens.

    Time and memory grow with B · L · width² / heads and B · L · width; the gradient is made in the forward pass.

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
    student = (student_q, student_k)
    if not torch.is_grad_enabled():
        # Inside a Function nothing tells that no gradient will be asked for.
        student = (student_q.detach(), student_k.detach())
    with autocast_off(student_q.device):
        total: Tensor = _ScoreDistance.apply(*student, teacher_q.detach(), teacher_k.detach(), heads, valid)
    return total


class _ScoreDistance(torch.autograd.Function):
    """Joins the forward pass, which already makes the gradient, to autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        student_q: Tensor,
        student_k: Tensor,
        teacher_q: Tensor,
        teacher_k: Tensor,
        heads: int,
        valid: Tensor | None,
    ) -> Tensor:
        dtype = compute_dtype(student_q, student_k, teacher_q, teacher_k)
        batch, length, width = student_q.shape
        wants = any(ctx.needs_input_grad[:2])
        grads = [x.new_zeros(x.shape, dtype=dtype) for x in (student_q, student_k)] if wants else []
        step = max(1, CHUNK // max(1, length * max(width, teacher_q.shape[-1])))
        totals = []
        for start in range(0, batch, step):
            chunk = slice(start, start + step)
            q, k, other_q, other_k = (
                _by_head(x[chunk], heads, None if valid is None else valid[chunk], scaled)
                for x, scaled in ((student_q, True), (student_k, False), (teacher_q, True), (teacher_k, False))
            )
            total, grad_q, grad_k = _distance(q, k, other_q, other_k, wants)
            totals.append(total)
            if grad_q is not None and grad_k is not None:
                size = width // heads
                grads[0][chunk] = (grad_q[..., :size] / math.sqrt(size)).transpose(1, 2).flatten(2)
                grads[1][chunk] = grad_k[..., :size].transpose(1, 2).flatten(2)
        ctx.save_for_backward(*grads)
        ctx.dtypes = student_q.dtype, student_k.dtype
        return torch.stack(totals).sum().to(dtype) if totals else student_q.new_zeros((), dtype=dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("attention_score_mse", "leave it out of what is differentiated twice")
        grads = [(g * upstream).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)]
        return (*grads, None, None, None, None)


def _by_head(x: Tensor, heads: int, valid: Tensor | None, scaled: bool) -> Tensor:
    """Vectors in float64 by head, `[B, heads, L, d]`, 0 at padding."""
    size = x.shape[-1] // heads
    if valid is not None:
        x = x.masked_fill(~valid[..., None], 0.0)
    # MPS has no float64.
    x = x.to(torch.float32 if x.device.type == "mps" else torch.float64)
    x = x.view(*x.shape[:2], heads, size).transpose(1, 2)
    return x / math.sqrt(size) if scaled else x


def _distance(
    q: Tensor, k: Tensor, other_q: Tensor, other_k: Tensor, wants: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Squared distance and its gradient with respect to `q` and `k`, `[B, heads, L, d]` each."""
    size = max(q.shape[-1], other_q.shape[-1])
    q, k, other_q, other_k = (F.pad(x, (0, size - x.shape[-1])) for x in (q, k, other_q, other_k))
    delta_q, delta_k = q - other_q, k - other_k
    delta_qt, k_t = delta_q.mT, k.mT
    delta_delta_q, delta_other_q, other_other_q = delta_qt @ delta_q, delta_qt @ other_q, other_q.mT @ other_q
    k_k, k_delta, delta_delta_k = k_t @ k, k_t @ delta_k, delta_k.mT @ delta_k
    total = (delta_delta_q * k_k + 2 * delta_other_q * k_delta + other_other_q * delta_delta_k).sum()
    if not wants:
        return total, None, None
    # ∂/∂Q = 2 (difference) K and ∂/∂K = 2 (difference)ᵀ Q, with Q = ΔQ + Q'.
    grad_q = 2 * (delta_q @ k_k + other_q @ k_delta.mT)
    grad_k = 2 * (k @ (delta_delta_q + delta_other_q) + delta_k @ (delta_other_q.mT + other_other_q))
    return total, grad_q, grad_k
