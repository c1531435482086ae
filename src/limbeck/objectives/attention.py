"""Attention scores compared before their softmax: TinyBERT and ELM."""

from __future__ import annotations

from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.precision import compute_dtype
from limbeck.kernels.score_gram import score_distance
from limbeck.objectives.arguments import as_mask, check_alike, check_heads, check_rank
from limbeck.objectives.loss_term import LossTerm


def attention_score_mse(
    student_q: Tensor,
    student_k: Tensor,
    teacher_q: Tensor,
    teacher_k: Tensor,
    *,
    heads: int,
    valid: Tensor | None = None,
) -> LossTerm:
    """Squared error between the attention scores of student and teacher, in time linear in the length.

    total = Σ (Q Kᵀ/√d − Q'K'ᵀ/√d')² over heads and pairs (row, column) of valid tokens, each model with its own head
    size d = width / heads; the mean is per head and pair. Both models need the same number of attention heads.

    Source: TinyBERT §3.1 (unnormalised scores); ELM eq. 7; eq. 11 of the comparative study. Nearest alternative:
    `relation_kl` on (query, key) with heads = attention heads, which compares the scores after their softmax.

    Args:
        student_q: `[B, L, width_S]`, heads concatenated.
        student_k: `[B, L, width_S]`.
        teacher_q: `[B, L, width_T]`; never gets a gradient.
        teacher_k: `[B, L, width_T]`; never gets a gradient.
        heads: Attention heads of both models; divides both widths.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.

    Returns:
        The summed squared error; the count is heads × Σ_b (valid tokens of sample b)².

    Raises:
        KernelError: if shapes, widths, heads or mask do not fit.
    """
    vectors = {"student_q": student_q, "student_k": student_k, "teacher_q": teacher_q, "teacher_k": teacher_k}
    check_rank(vectors, 3, "[B, L, width]")
    check_alike(vectors, 2)
    for model, q, k in (("student", student_q, student_k), ("teacher", teacher_q, teacher_k)):
        if q.shape != k.shape:
            raise KernelError(
                f"{model}_q is {q.shape[-1]} wide and {model}_k {k.shape[-1]}; scores need equal widths "
                "(grouped-query attention is not covered)."
            )
    check_heads(heads, {"student": student_q.shape[-1], "teacher": teacher_q.shape[-1]})
    mask, dtype = as_mask(valid, student_q), compute_dtype(*vectors.values())
    total = score_distance(student_q, student_k, teacher_q, teacher_k, heads, mask)
    batch, length, _ = student_q.shape
    if mask is None:
        return LossTerm(total, total.new_tensor(heads * batch * length**2))
    return LossTerm(total, mask.sum(1).to(dtype).square().sum() * heads)
