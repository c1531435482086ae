"""Terms on heads: relations between the tokens of a text, attention scores, and the heads' vectors themselves."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels import dispatch, precision, score_gram
from limbeck.objectives.registry import Benchmark, Workload, register_as_objective
from limbeck.objectives.terms import Inputs, LossTerm, check_heads, check_inputs


def _check_pairs(vectors: dict[str, Tensor], heads: int, valid: Tensor | None, rule: str) -> Inputs:
    """Check two streams of each model, and the heads that their widths hold.

    Args:
        vectors: Two of the student, then two of the teacher, by name.
        heads: Number of heads; divides all widths.
        valid: Real tokens; None means all.
        rule: The rule that both streams of a model are equally wide, for the message.
    """
    inputs = check_inputs("[B, L, width]", vectors, units=2, valid=valid)
    names = list(vectors)
    for left_name, right_name in (names[:2], names[2:]):
        left_width = vectors[left_name].shape[-1]
        right_width = vectors[right_name].shape[-1]
        if left_width != right_width:
            raise KernelError(f"{left_name} is {left_width} wide and {right_name} {right_width}; {rule}.")
    student, _, teacher, _ = vectors.values()
    check_heads(heads, {"student": student.shape[-1], "teacher": teacher.shape[-1]})
    return inputs


def _draw_streams(
    case: Any, normal: Callable[..., Tensor], symmetric: bool = False
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], dict[str, Any]]:
    """Draw two streams of each model for a benchmark; if `symmetric`, both are the same."""
    # The order of the draws decides the numbers: the first streams of both models come before the second ones.
    student = normal(case.batch, case.length, case.student_width)
    teacher = normal(case.batch, case.length, case.teacher_width)
    if symmetric:
        return (student, student), (teacher, teacher), {"heads": case.heads}
    second_student = normal(*student.shape)
    second_teacher = normal(*teacher.shape)
    return (student, second_student), (teacher, second_teacher), {"heads": case.heads}


def _matrices_held(count: int, case: Any) -> int:
    """Return how many numbers a number of score matrices `[B, heads, L, L]` have."""
    return int(count * case.batch * case.heads * case.length**2)


def _count_relation(work: Workload) -> int:
    """Count the operations for the scores of both models, and for the gradient of each of the student's streams."""
    # A product over n numbers takes 2 n operations.
    return 2 * work.pairs * (work.teacher_width + (1 + work.student_streams) * work.student_width)


def _relation_by(backend: str, *streams: Tensor, **options: Any) -> LossTerm:
    """Compute `relation_kl` by a backend, for a benchmark."""
    return relation_kl(*streams, backend=backend, **options)


@register_as_objective(
    unit="token",
    operations=_count_relation,
    benchmark=Benchmark(
        backends={name: partial(_relation_by, name) for name in dispatch.RELATION_KL.backends},
        inputs=lambda case, normal: _draw_streams(case, normal, case.relation == "symmetric"),
        numbers_at_once=partial(_matrices_held, 7),
        sizes=("heads", "relation"),
    ),
)
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

    Example:
        >>> student = torch.eye(4).unsqueeze(0)  # 1 sample, 4 tokens, width 4
        >>> teacher = 2 * student
        >>> loss = relation_kl(student, student, teacher, teacher, heads=2)
        >>> round(loss.mean.item(), 4)
        0.2126
    """
    vectors = {"student_a": student_a, "student_b": student_b, "teacher_a": teacher_a, "teacher_b": teacher_b}
    rule = (
        "a relation needs equal widths (with grouped-query attention, pair query only with query and key only with key "
        "or value)"
    )
    inputs = _check_pairs(vectors, heads, valid, rule)
    total = dispatch.relation_kl_total(
        *vectors.values(), heads=heads, valid=inputs.mask, causal=causal, backend=backend
    )
    return inputs.term(total, per_unit=heads)


def _count_scores(work: Workload) -> int:
    """Count the operations by scores or, where they are fewer, by Gram matrices; see `score_gram`."""
    student = work.student_width
    teacher = work.teacher_width
    # Operations of a token with heads as wide as the model: 4 s² + 4 s t + 4 t² for the Gram matrices, with s and t the
    # widths of student and teacher, and 4 s² + 4 s t for the gradient.
    gram = 8 * student * student + 8 * student * teacher + 4 * teacher * teacher
    operations = 0
    for length in work.lengths:
        # A product of [L, width] and [width, L] takes 2 L² width operations: once for the teacher, and for the student
        # also twice in the backward pass.
        by_scores = length**2 * (6 * student + 2 * teacher)
        by_gram = length * gram // int(work.options["heads"])
        operations += min(by_scores, by_gram)
    return operations


def _score_mse_materialised(
    student_q: Tensor, student_k: Tensor, teacher_q: Tensor, teacher_k: Tensor, *, heads: int, valid: Tensor
) -> LossTerm:
    """Compute `attention_score_mse` with every score held at once."""
    dtype = precision.compute_dtype(student_q, student_k, teacher_q, teacher_k)

    def split_heads(vectors: Tensor) -> Tensor:
        """Split `[B, L, width]` into heads, `[B, heads, L, d]`."""
        return vectors.to(dtype).unflatten(-1, (heads, -1)).transpose(1, 2)

    def score(query: Tensor, key: Tensor) -> Tensor:
        """Return the scores of all pairs of tokens, `[B, heads, L, L]`."""
        query_heads = split_heads(query)
        key_heads = split_heads(key)
        return query_heads @ key_heads.mT / math.sqrt(query_heads.shape[-1])

    # A pair counts if both of its tokens are real: [B, 1, L, L].
    is_valid_pair = valid[:, None, :, None] & valid[:, None, None, :]
    difference = score(student_q, student_k) - score(teacher_q, teacher_k)
    squares = difference.masked_fill(~is_valid_pair, 0.0).square()
    return LossTerm(squares.sum(), is_valid_pair.sum() * heads)


def count_pairs(inputs: Inputs) -> Tensor:
    """Return Σ_b (valid tokens of sample b)², a scalar of the computation's dtype."""
    batch, length = inputs.first.shape[:2]
    if inputs.mask is None:
        return inputs.first.new_tensor(batch * length**2, dtype=inputs.dtype)
    return inputs.mask.sum(1).to(inputs.dtype).square().sum()


def _score_mse_by_gram(*streams: Tensor, **options: Any) -> LossTerm:
    """Compute `attention_score_mse` itself, which is not yet defined where its benchmark is."""
    return attention_score_mse(*streams, **options)


@register_as_objective(
    unit="pair",
    operations=_count_scores,
    benchmark=Benchmark(
        backends={"materialised": _score_mse_materialised, "gram": _score_mse_by_gram},
        inputs=_draw_streams,
        numbers_at_once=partial(_matrices_held, 6),
        heads=12,
    ),
)
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

    Source: TinyBERT §3.1 (unnormalised scores); ELM eq. 7; but for 1/√d, the terms of eq. 11 of the comparative study.
    Nearest alternative: `relation_kl` on (query, key) with heads = attention heads, which compares the scores after
    their softmax.

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

    Example:
        >>> queries = torch.eye(4).unsqueeze(0)  # 1 sample, 4 tokens, width 4
        >>> keys = 2 * queries
        >>> loss = attention_score_mse(queries, queries, queries, keys, heads=2)
        >>> round(loss.mean.item(), 4)
        0.0625
    """
    vectors = {"student_q": student_q, "student_k": student_k, "teacher_q": teacher_q, "teacher_k": teacher_k}
    rule = "scores need equal widths (grouped-query attention is not covered)"
    inputs = _check_pairs(vectors, heads, valid, rule)
    total = score_gram.score_distance(student_q, student_k, teacher_q, teacher_k, heads, inputs.mask)
    return LossTerm(total, count_pairs(inputs) * heads)


@register_as_objective(unit="token", by_token=True)
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

    Example:
        >>> student = torch.ones(1, 3, 4)  # 1 sample, 3 tokens, width 4
        >>> teacher = torch.zeros(1, 3, 4)
        >>> direct_mse(student, teacher, heads=2).mean
        tensor(2.)
    """
    inputs = check_inputs("[B, L, width]", {"student": student, "teacher": teacher}, units=2, valid=valid)
    check_heads(heads, {"student": student.shape[-1], "teacher": teacher.shape[-1]})
    student_size = student.shape[-1] // heads
    teacher_size = teacher.shape[-1] // heads
    if projections is None and student_size != teacher_size:
        raise KernelError(
            f"the student's heads have {student_size} numbers and the teacher's {teacher_size}, so they cannot be "
            "compared directly; give projections."
        )
    if projections is not None and projections.shape != (heads, student_size, teacher_size):
        raise KernelError(
            f"projections has shape {list(projections.shape)}; it has to be [{heads}, {student_size}, {teacher_size}]."
        )
    with precision.autocast_off(student.device):
        # [heads, B · L, head size]
        mapped = inputs.masked(student).reshape(-1, heads, student_size).transpose(0, 1)
        target = inputs.masked(teacher.detach()).reshape(-1, heads, teacher_size).transpose(0, 1)
        if projections is not None:
            mapped = mapped @ projections.to(inputs.dtype)
        return inputs.term((mapped - target).square().sum(), per_unit=teacher_size)
