"""Relations between the samples of a batch (MLKD-BERT's second stage): they cannot be split over batches."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.objectives.arguments import check_alike, check_labels, check_rank, check_temperature, count_of
from limbeck.objectives.loss_term import LossTerm


def sample_relation_kl(student: Tensor, teacher: Tensor) -> LossTerm:
    """Divergence of the student's sample-to-sample similarities from the teacher's.

    R = softmax(G Gᵀ / √d) over the batch, each model with its own width d; total = Σ_i KL(R^T_i ‖ R^S_i) in
    nats, 0 at equality. The rows are taken as they are: normalise them first if only direction should count.

    Source: MLKD-BERT §3.3, eq. 13–15. Nearest alternative: `pooled_cosine`, which compares each text with
    itself and does not depend on what else is in the batch.

    Args:
        student: `[B, width_S]`.
        teacher: `[B, width_T]`, of any width; never gets a gradient.

    Returns:
        The summed divergence; the count is B.

    Raises:
        KernelError: if the shapes do not fit.
    """
    check_rank({"student": student, "teacher": teacher}, 2, "[B, width]")
    check_alike({"student": student, "teacher": teacher}, 1)
    own, other = student[None], teacher[None]
    total = relation_kl_reference(own, own, other, other, heads=1)
    return LossTerm(total, count_of(None, student, axes=1).to(compute_dtype(student, teacher)))


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
    """
    rows = {"student_projected": student_projected, "teacher": teacher}
    check_rank(rows, 2, "[B, width]")
    check_alike(rows, 2)
    check_labels(labels, student_projected.shape[:1])
    check_temperature(temperature)
    dtype = compute_dtype(student_projected, teacher)
    with autocast_off(student_projected.device):
        h = torch.cat([student_projected.to(dtype), teacher.detach().to(dtype)])
        itself = torch.eye(len(h), dtype=torch.bool, device=h.device)
        # Finite, so that 0 · (what stands on the diagonal) is 0.
        scores = (h @ h.T / temperature).masked_fill(itself, torch.finfo(dtype).min / 4).log_softmax(-1)
        classes = torch.cat([labels, labels]).to(h.device)
        positive = ((classes[:, None] == classes[None]) & ~itself).to(dtype)
        total = -(positive * scores / positive.sum(-1, keepdim=True)).sum()
        return LossTerm(total, count_of(None, student_projected, 2, axes=1).to(dtype))
