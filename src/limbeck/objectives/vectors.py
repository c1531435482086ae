"""Vectors compared one by one: hidden states by token, sentence and CLS vectors by sample, samples with each other."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.objectives.registry import register_as_objective
from limbeck.objectives.terms import LossTerm, Projection, check_inputs, check_labels, check_temperature, project


@register_as_objective(unit="token", by_token=True)
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
            needs equal widths. One per layer pair; the papers print one for all layers (ELM eq. 7, TinyBERT eq. 8).

    Returns:
        The summed squared error; the count is valid tokens × width_T.

    Raises:
        KernelError: if shapes, widths, mask or projection do not fit.

    Example:
        >>> student = torch.ones(1, 3, 4)  # 1 sample, 3 tokens, width 4
        >>> teacher = torch.full((1, 3, 2), 5.0)
        >>> hidden_mse(student, teacher, projection=torch.ones(4, 2)).mean
        tensor(1.)
    """
    inputs = check_inputs("[B, L, width]", {"student": student, "teacher": teacher}, units=2, valid=valid)
    with autocast_off(student.device):
        # Padding is set to 0 before a learned map, since the map's gradient sums over all rows; and after it, since a
        # bias would make it something else.
        vectors = student.to(inputs.dtype) if projection is None else inputs.masked(student)
        teacher_width = teacher.shape[-1]
        error = project(vectors, projection, teacher_width) - teacher.detach().to(inputs.dtype)
        total = inputs.masked(error).square().sum()
        return inputs.term(total, per_unit=teacher_width)


@register_as_objective(unit="token", by_token=True)
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

    Example:
        >>> student = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])  # 1 sample, 2 tokens, width 2
        >>> teacher = torch.tensor([[[2.0, 0.0], [0.0, 2.0]]])
        >>> hidden_cosine(student, teacher).mean
        tensor(0.5000)
    """
    inputs = check_inputs("[B, L, width]", {"student": student, "teacher": teacher}, units=2, valid=valid)
    # Without a projection this only checks that the widths are equal.
    project(student, None, teacher.shape[-1])
    with autocast_off(student.device):
        distance = cosine_distance(inputs.masked(student), inputs.masked(teacher.detach()))
        return inputs.term(inputs.masked(distance).sum())


def cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return 1 − cos of vectors along the last axis, without loss of digits when `x` is near `y`.

    It is computed as ½‖x̂ − ŷ‖² = 1 − x̂·ŷ with the unit vectors x̂ and ŷ, since 1 − cos itself would lose all digits
    there. It is exactly 0 at equality. A zero vector has distance 1 to everything.

    Args:
        x: `[..., width]`.
        y: `[..., width]`.

    Returns:
        `[...]`, between 0 and 2.
    """
    squared_distance = (F.normalize(x, dim=-1) - F.normalize(y, dim=-1)).square().sum(-1)
    # `normalize` leaves a zero vector at 0. Its squared distance to a unit vector is then 1, and to another zero vector
    # 0. Adding 1 for each zero vector makes both 2, and half of that is 1.
    x_is_zero = (x == 0).all(-1).to(x.dtype)
    y_is_zero = (y == 0).all(-1).to(x.dtype)
    zero_vectors = torch.as_tensor(x_is_zero + y_is_zero)
    return 0.5 * (squared_distance + zero_vectors)


@register_as_objective(unit="sample")
def pooled_cosine(
    student: Tensor, teacher: Tensor, *, projection: Projection | None = None, prefix: int | None = None
) -> LossTerm:
    """Angle between the student's sentence vectors and the teacher's.

    total = Σ_b (1 − cos(g^S_b W, g^T_b)), each between 0 and 2.

    Source: ours; DistilBERT's cosine term (its §3) applied to sentence vectors. Nearest alternatives:
    `pooled_distance`, which sees length too, and `sample_relation_kl`, which compares the texts of a batch with each
    other and so needs no projection.

    Args:
        student: `[B, width_S]`.
        teacher: `[B, width_T]`; never gets a gradient.
        projection: W as a matrix `[width_S, width_T]`, or a module or callable; None needs equal widths.
        prefix: Compare the first features alone, 1..width_T; None takes all.

    Returns:
        The summed 1 − cos; the count is B.

    Raises:
        KernelError: if shapes, widths, projection or prefix do not fit.

    Example:
        >>> student = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # vectors of 2 texts
        >>> teacher = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> pooled_cosine(student, teacher).mean
        tensor(0.5000)
    """
    inputs = check_inputs("[B, width]", {"student": student, "teacher": teacher}, units=1)
    _check_prefix(prefix, teacher.shape[-1])
    with autocast_off(student.device):
        mapped = project(inputs.masked(student), projection, teacher.shape[-1])
        wanted = inputs.masked(teacher.detach())
        distance = cosine_distance(mapped[:, :prefix], wanted[:, :prefix])
        return inputs.term(distance.sum())


@register_as_objective(unit="sample")
def pooled_distance(
    student: Tensor,
    teacher: Tensor,
    *,
    projection: Projection | None = None,
    squared: bool = False,
    prefix: int | None = None,
) -> LossTerm:
    """Distance between the student's sentence vectors and the teacher's, as they are.

    total = Σ_b ‖g^S_b W − g^T_b‖₂, or Σ_b ‖g^S_b W − g^T_b‖₂² with `squared`: for vectors of length one each is
    between 0 and 2, and squared twice 1 − cos. With a prefix of m features both are replaced by their first m, scaled
    to length one (Matryoshka representation learning, arXiv 2205.13147).

    The norm pulls every text alike, however far its vector is; its square pulls far ones more.

    Source: LEAF (arXiv 2509.12539). The paper's full text was not available: a replication reports the L2 norm of the
    error of a text, L = ‖e‖₂, as its loss, and other summaries its square, hence both. Nearest alternative:
    `pooled_cosine`, blind to length.

    Args:
        student: `[B, width_S]`.
        teacher: `[B, width_T]`; never gets a gradient.
        projection: W as a matrix `[width_S, width_T]`, or a module or callable; None needs equal widths.
        squared: Square the distance of each text.
        prefix: How many first features are compared, 1..width_T; None compares all, as they are.

    Returns:
        The summed distance; the count is B.

    Raises:
        KernelError: if shapes, widths, projection or prefix do not fit.

    Example:
        >>> student = torch.tensor([[3.0, 0.0]])  # the vector of 1 text
        >>> teacher = torch.tensor([[0.0, 4.0]])
        >>> pooled_distance(student, teacher).mean
        tensor(5.)
    """
    inputs = check_inputs("[B, width]", {"student": student, "teacher": teacher}, units=1)
    _check_prefix(prefix, teacher.shape[-1])
    with autocast_off(student.device):
        mapped = project(inputs.masked(student), projection, teacher.shape[-1])
        wanted = inputs.masked(teacher.detach())
        if prefix is not None:
            mapped = F.normalize(mapped[:, :prefix], dim=-1)
            wanted = F.normalize(wanted[:, :prefix], dim=-1)
        error = mapped - wanted
        if squared:
            return inputs.term(error.square().sum(-1).sum())
        # The gradient of the norm at 0 is 0.
        return inputs.term(torch.linalg.vector_norm(error, dim=-1).sum())


def _check_prefix(prefix: int | None, width: int) -> None:
    """Refuse a number of first features that the teacher's vectors do not have."""
    if prefix is not None and not 1 <= prefix <= width:
        raise KernelError(f"prefix is {prefix}; it has to be 1 to {width}, the width of the teacher's vectors.")


@register_as_objective(unit="sample")
def patient_mse(student_cls: Tensor, teacher_cls: Tensor) -> LossTerm:
    """Squared distance of the L2-normalised CLS vectors of one layer pair.

    total = Σ_b ‖h^S_b/‖h^S_b‖ − h^T_b/‖h^T_b‖‖², each between 0 and 4: twice 1 − cos.

    Source: BERT-PKD (Sun et al. 2019) §3.2, its patient loss for one layer. Nearest alternative: `hidden_mse` on all
    tokens, which sees length too.

    Args:
        student_cls: `[B, width]`.
        teacher_cls: `[B, width]`, as wide; never gets a gradient.

    Returns:
        The summed squared distance; the count is B.

    Raises:
        KernelError: if the shapes do not fit.

    Example:
        >>> student = torch.tensor([[3.0, 0.0]])  # the vector of 1 text
        >>> teacher = torch.tensor([[0.0, 4.0]])
        >>> patient_mse(student, teacher).mean
        tensor(2.)
    """
    inputs = check_inputs("[B, width]", {"student_cls": student_cls, "teacher_cls": teacher_cls}, units=1)
    # Without a projection this only checks that the widths are equal.
    project(student_cls, projection=None, width=teacher_cls.shape[-1])
    with autocast_off(student_cls.device):
        student = F.normalize(inputs.masked(student_cls), dim=-1)
        teacher = F.normalize(inputs.masked(teacher_cls.detach()), dim=-1)
        squared_distances = (student - teacher).square()
        return inputs.term(squared_distances.sum())


@register_as_objective(unit="sample", batch_coupled=True)
def sample_relation_kl(student: Tensor, teacher: Tensor) -> LossTerm:
    """Divergence of the student's sample-to-sample similarities from the teacher's.

    R = softmax(G Gᵀ / √d) over the batch, each model with its own width d; total = Σ_i KL(R^T_i ‖ R^S_i) in
    nats, 0 at equality. The rows are taken as they are: normalise them first if only direction should count.

    The samples of a batch act on each other, so that it cannot be split.

    Source: MLKD-BERT §3.3, eq. 13–15. Nearest alternative: `pooled_cosine`, which compares each text with itself and
    does not depend on the rest of the batch.

    Args:
        student: `[B, width_S]`.
        teacher: `[B, width_T]`, of any width; never gets a gradient.

    Returns:
        The summed divergence; the count is B.

    Raises:
        KernelError: if the shapes do not fit.

    Example:
        >>> student = torch.eye(3)  # vectors of 3 texts
        >>> round(sample_relation_kl(student, 2 * student).mean.item(), 4)
        0.2845
    """
    inputs = check_inputs("[B, width]", {"student": student, "teacher": teacher}, units=1)
    # The relation is that of tokens, with the samples of the batch as the tokens of one text: [1, B, width].
    student_text = student[None]
    teacher_text = teacher[None]
    return inputs.term(relation_kl_reference(student_text, student_text, teacher_text, teacher_text, heads=1))


@register_as_objective(unit="sample", batch_coupled=True, is_divergence=False)
def sample_contrastive(
    student_projected: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float = 0.07
) -> LossTerm:
    """Supervised InfoNCE over the 2b rows of student and teacher: same label near, other labels far.

    total = Σ_i 1/|P(i)| Σ_{p ∈ P(i)} −log(exp(h_i·h_p/ρ) / Σ_{a ≠ i} exp(h_i·h_a/ρ)), where P(i) are the other rows
    with the label of row i; the teacher's rows take part as constants. The rows are taken as they are: ρ = 0.07
    presumes that the caller has L2-normalised them.

    Source: MLKD-BERT §3.3, eq. 16–17, after Khosla et al. 2020. Two misprints are not followed: `exp(h·h)/ρ`, in which
    ρ cancels, and a second sum over i. Nearest alternative: `sample_relation_kl`, which needs no labels.

    Args:
        student_projected: The student's rows mapped to the teacher's width, `[B, width_T]`.
        teacher: `[B, width_T]`; never gets a gradient.
        labels: Class of each sample, whole numbers `[B]`.
        temperature: ρ, above 0.

    Returns:
        The summed loss; the count is 2 B.

    Raises:
        KernelError: if shapes, labels or temperature do not fit.

    Example:
        >>> student = torch.eye(3)  # vectors of 3 texts
        >>> labels = torch.tensor([0, 0, 1])
        >>> round(sample_contrastive(student, student, labels, temperature=1.0).mean.item(), 4)
        1.3493
    """
    rows = {"student_projected": student_projected, "teacher": teacher}
    inputs = check_inputs("[B, width]", rows, units=1, alike=2)
    check_labels(labels, student_projected.shape[:1])
    check_temperature(temperature)
    with autocast_off(student_projected.device):
        # [2 B, width_T], the student's rows before the teacher's.
        h = torch.cat([inputs.masked(student_projected), inputs.masked(teacher.detach())])
        is_itself = torch.eye(len(h), dtype=torch.bool, device=h.device)
        # A row is no neighbour of itself. Minus infinity would become NaN below, where it is multiplied by 0. A quarter
        # of the lowest number leaves room for the subtractions of the softmax.
        nearly_minus_infinity = torch.finfo(h.dtype).min / 4
        similarities = (h @ h.T / temperature).masked_fill(is_itself, nearly_minus_infinity)
        log_shares = similarities.log_softmax(-1)

        # Which rows are in P(i): 1 for those, 0 for the others.
        classes = torch.cat([labels, labels]).to(h.device)
        has_same_label = classes[:, None] == classes[None]
        is_positive = (has_same_label & ~is_itself).to(h.dtype)
        positive_count = is_positive.sum(-1, keepdim=True)
        total = -(is_positive * log_shares / positive_count).sum()
        rows_of_a_sample = 2
        return inputs.term(total, per_unit=rows_of_a_sample)
