"""Vectors compared position by position: hidden states and embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.objectives.arguments import (
    Projection,
    as_mask,
    blank,
    check_alike,
    check_rank,
    count_of,
    project,
)
from limbeck.objectives.loss_term import LossTerm


def hidden_mse(
    student: Tensor, teacher: Tensor, *, valid: Tensor | None = None, projection: Projection | None = None
) -> LossTerm:
    """Squared error between the student's mapped vectors and the teacher's.

    total = Σ (H^S W − H^T)² over valid tokens and the teacher's features; the mean is per token and feature.

    Source: HS transfer of the comparative study §3, eq. 6; MLKD-BERT eq. 11; TinyBERT's hidden and embedding
    terms; on value vectors MiniLM's ablation (its table 6). Nearest alternative: `hidden_cosine`, blind to
    length.

    Args:
        student: `[B, L, width_S]`.
        teacher: `[B, L, width_T]`; never gets a gradient.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        projection: W as a matrix `[width_S, width_T]`, or a module or callable from width_S to width_T; None
            needs equal widths. One per layer pair: sharing one between layers is a known mistake.

    Returns:
        The summed squared error; the count is valid tokens × width_T.

    Raises:
        KernelError: if shapes, widths, mask or projection do not fit.
    """
    check_rank({"student": student, "teacher": teacher}, 3, "[B, L, width]")
    check_alike({"student": student, "teacher": teacher}, 2)
    mask, dtype = as_mask(valid, student), compute_dtype(student, teacher)
    with autocast_off(student.device):
        mapped = project(blank(student, mask, dtype), projection, teacher.shape[-1])
        # A bias moves blank rows: they are wiped once more.
        total = (blank(mapped, mask, dtype) - blank(teacher.detach(), mask, dtype)).square().sum()
        return LossTerm(total, count_of(mask, teacher, teacher.shape[-1]).to(dtype))


def hidden_cosine(student: Tensor, teacher: Tensor, *, valid: Tensor | None = None) -> LossTerm:
    """Angle between the student's vectors and the teacher's.

    total = Σ (1 − cos(H^S_t, H^T_t)) over valid tokens, each between 0 and 2; a zero vector counts 1.

    Source: DistilBERT §3 (its cosine embedding loss). Nearest alternative: `hidden_mse`, which sees length
    too and takes a projection.

    Args:
        student: `[B, L, width]`.
        teacher: `[B, L, width]`, as wide; never gets a gradient.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.

    Returns:
        The summed 1 − cos; the count is valid tokens.

    Raises:
        KernelError: if shapes, widths or mask do not fit.
    """
    check_rank({"student": student, "teacher": teacher}, 3, "[B, L, width]")
    check_alike({"student": student, "teacher": teacher}, 2)
    project(student, None, teacher.shape[-1])
    mask, dtype = as_mask(valid, student), compute_dtype(student, teacher)
    with autocast_off(student.device):
        distance = cosine_distance(blank(student, mask, dtype), blank(teacher.detach(), mask, dtype))
        total = (distance if mask is None else distance.masked_fill(~mask, 0.0)).sum()
        return LossTerm(total, count_of(mask, student).to(dtype))


def cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    """1 − cos of the last axis, without the cancellation that costs it all digits when `x` is near `y`.

    Uses 1 − x̂·ŷ = ½‖x̂ − ŷ‖² for unit vectors; exactly 0 at equality. A zero vector has distance 1 to
    everything.

    Args:
        x: `[..., width]`.
        y: `[..., width]`.

    Returns:
        `[...]`, between 0 and 2.
    """
    unit_x, unit_y = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
    without_direction = (x == 0).all(-1).to(x.dtype) + (y == 0).all(-1).to(x.dtype)
    return 0.5 * ((unit_x - unit_y).square().sum(-1) + torch.as_tensor(without_direction))
