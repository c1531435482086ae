"""Relation heads compared directly, vector by vector: DirectMiniLM."""

from __future__ import annotations

from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.objectives.arguments import as_mask, blank, check_alike, check_heads, check_rank, count_of
from limbeck.objectives.loss_term import LossTerm


def direct_mse(
    student: Tensor, teacher: Tensor, *, heads: int, valid: Tensor | None = None, projections: Tensor | None = None
) -> LossTerm:
    """Squared error between each mapped relation head of the student and the teacher's, summed over heads.

    mean = Σ_a MSE(A^S_a W_a, A^T_a), where MSE is a mean over valid tokens and the d_r^T features of one head: with
    more heads the value grows, as printed. One call covers one of Q, K and V.

    Source: comparative study §3, eq. 10 (which found heads = attention heads best, App. B). Nearest alternatives:
    `relation_kl`, which compares relations and needs no maps; `hidden_mse`, with one map for the whole width.

    Args:
        student: Queries, keys or values, `[B, L, width_S]`, heads concatenated.
        teacher: The same stream, `[B, L, width_T]`; never gets a gradient.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        projections: W_a for every head, `[heads, width_S / heads, width_T / heads]`; None needs equal widths.

    Returns:
        The summed squared error; the count is valid tokens × width_T / heads.

    Raises:
        KernelError: if shapes, widths, heads, mask or projections do not fit.
    """
    check_rank({"student": student, "teacher": teacher}, 3, "[B, L, width]")
    check_alike({"student": student, "teacher": teacher}, 2)
    check_heads(heads, {"student": student.shape[-1], "teacher": teacher.shape[-1]})
    own, other = student.shape[-1] // heads, teacher.shape[-1] // heads
    if projections is None and own != other:
        raise KernelError(f"head sizes differ, student {own} and teacher {other}; give projections.")
    if projections is not None and projections.shape != (heads, own, other):
        raise KernelError(f"projections has shape {list(projections.shape)}; it has to be [{heads}, {own}, {other}].")
    mask, dtype = as_mask(valid, student), compute_dtype(student, teacher)
    with autocast_off(student.device):
        # [heads, B · L, head size]
        mapped, target = (
            blank(x, mask, dtype).reshape(-1, heads, x.shape[-1] // heads).transpose(0, 1)
            for x in (student, teacher.detach())
        )
        if projections is not None:
            mapped = mapped @ projections.to(dtype)
        return LossTerm((mapped - target).square().sum(), count_of(mask, student, other).to(dtype))
