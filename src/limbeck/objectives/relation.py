"""Relations between the tokens of a text: MiniLM, MiniLMv2 and the token terms of MLKD-BERT."""

from __future__ import annotations

from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.dispatch import relation_kl_total
from limbeck.kernels.precision import compute_dtype
from limbeck.objectives.arguments import as_mask, check_alike, check_heads, check_rank, count_of
from limbeck.objectives.loss_term import LossTerm


def relation_kl(
    student_a: Tensor,
    student_b: Tensor,
    teacher_a: Tensor,
    teacher_b: Tensor,
    *,
    heads: int,
    valid: Tensor | None = None,
    causal: bool = False,
    backend: str = "auto",
) -> LossTerm:
    """Divergence of the student's token-to-token relations from the teacher's.

    R = softmax(A_i A_jᵀ / √d_r) over the valid columns, per relation head of size d_r = width / heads (each
    model's own); total = Σ_b Σ_a Σ_t KL(R^T ‖ R^S) in nats, 0 at equality. Head counts of the two models'
    attention play no part, so (query, query), (key, key), (value, value) and the six mixed pairs work between
    any two models.

    Source: MiniLMv2 §3.1, eq. 6–8; with heads = attention heads, (query, key) is MiniLM §3.1 and (value,
    value) its §3.2; with heads = 1 on embeddings MLKD-BERT eq. 1–3, on contexts eq. 8–10. Nearest
    alternative: `direct_mse`, which compares the vectors themselves through learned maps.

    Args:
        student_a: Left vectors, `[B, L, width_S]`, heads concatenated.
        student_b: Right vectors, `[B, L, width_S]`; the same tensor as `student_a` for a symmetric relation.
        teacher_a: Left vectors, `[B, L, width_T]`; never gets a gradient.
        teacher_b: Right vectors, `[B, L, width_T]`; never gets a gradient.
        heads: Relation heads A_r, 1 or more; divides both widths.
        valid: Real tokens, bool or 0/1, `[B, L]`, of any pattern; None means all.
        causal: Row t sees the columns up to t only, for decoders.
        backend: "auto", "reference" (plain, the specification), "blocked" (no L×L matrix of all heads) or "triton"
            (GPU).

    Returns:
        The summed divergence; the count is heads × valid rows.

    Raises:
        KernelError: if shapes, widths, heads, mask or backend do not fit.
    """
    vectors = {"student_a": student_a, "student_b": student_b, "teacher_a": teacher_a, "teacher_b": teacher_b}
    check_rank(vectors, 3, "[B, L, width]")
    check_alike(vectors, 2)
    for model, a, b in (("student", student_a, student_b), ("teacher", teacher_a, teacher_b)):
        if a.shape != b.shape:
            raise KernelError(
                f"{model}_a is {a.shape[-1]} wide and {model}_b {b.shape[-1]}; a relation needs equal widths "
                "(with grouped-query attention, pair query only with query and key only with key or value)."
            )
    check_heads(heads, {"student": student_a.shape[-1], "teacher": teacher_a.shape[-1]})
    mask = as_mask(valid, student_a)
    total = relation_kl_total(
        student_a, student_b, teacher_a, teacher_b, heads=heads, valid=mask, causal=causal, backend=backend
    )
    return LossTerm(total, count_of(mask, student_a, heads).to(compute_dtype(*vectors.values())))
