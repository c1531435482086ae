"""`relation_kl` written as its formula: the specification that every other backend is held to."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.precision import autocast_off, compute_dtype


def relation_kl_reference(
    student_a: Tensor,
    student_b: Tensor,
    teacher_a: Tensor,
    teacher_b: Tensor,
    heads: int,
    valid: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Sum of KL(R^T ‖ R^S) over samples, relation heads and valid rows, materialised in plain PyTorch.

    R = softmax(a bᵀ / √d_r) over the valid columns, with d_r = width / heads for each model on its own
    (MiniLMv2 §3.1, eq. 6–8, before the division by heads × rows). Time and memory grow with
    B · heads · L²: `relation_kl_blocked` gives the same number without that memory.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`; carries gradient.
        student_b: Right vectors of the student, `[B, L, width_S]`; carries gradient.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`; constant.
        teacher_b: Right vectors of the teacher, `[B, L, width_T]`; constant.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.
        causal: Row t sees the columns up to t only.

    Returns:
        A scalar in nats, float64 where an input is float64 and float32 otherwise.
    """
    dtype = compute_dtype(student_a, student_b, teacher_a, teacher_b)
    batch, length, _ = student_a.shape
    if valid is None:
        valid = torch.ones(batch, length, dtype=torch.bool, device=student_a.device)
    allowed = valid[:, None, None, :].expand(batch, 1, length, length)
    if causal:
        allowed = allowed & torch.ones(length, length, dtype=torch.bool, device=valid.device).tril()
    with autocast_off(student_a.device):
        with torch.no_grad():
            teacher = _log_relation(teacher_a, teacher_b, heads, valid, allowed, dtype)
        student = _log_relation(student_a, student_b, heads, valid, allowed, dtype)
        divergence = F.kl_div(student, teacher, log_target=True, reduction="none")
        counted = allowed & valid[:, None, :, None]
        return divergence.masked_fill(~counted, 0.0).sum()


def _log_relation(a: Tensor, b: Tensor, heads: int, valid: Tensor, allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the log-probabilities of a relation, `[B, heads, L, L]`.

    Args:
        a: Vectors of the rows, `[B, L, width]`.
        b: Vectors of the columns, likewise.
        heads: Number of relation heads.
        valid: True at tokens that are no padding, `[B, L]`.
        allowed: True where a column counts for a row; broadcasts to `[B, heads, L, L]`.
        dtype: The dtype of the computation.
    """
    width_of_head = a.shape[-1] // heads
    rows = _split_heads(a, heads, valid, dtype)
    columns = _split_heads(b, heads, valid, dtype)
    logits = rows @ columns.transpose(-1, -2) / math.sqrt(width_of_head)
    # A finite floor: a row without any valid column must not become NaN.
    return logits.masked_fill(~allowed, torch.finfo(dtype).min / 4).log_softmax(-1)


def _split_heads(vectors: Tensor, heads: int, valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Return vectors by head, `[B, heads, L, width / heads]`, with 0 at padding, where a NaN would spread."""
    batch, length, width = vectors.shape
    wiped = vectors.to(dtype).masked_fill(~valid[..., None], 0.0)
    return wiped.view(batch, length, heads, width // heads).transpose(1, 2)
