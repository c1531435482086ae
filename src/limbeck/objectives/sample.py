"""Relations between the samples of a batch (MLKD-BERT's second stage): they cannot be split over batches."""

from __future__ import annotations

from torch import Tensor

from limbeck.kernels.precision import compute_dtype
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.objectives.arguments import check_alike, check_rank, count_of
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
