"""One vector per text: sentence embeddings."""

from __future__ import annotations

from torch import Tensor

from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.objectives.arguments import Projection, check_alike, check_rank, count_of, project
from limbeck.objectives.hidden import cosine_distance
from limbeck.objectives.loss_term import LossTerm


def pooled_cosine(student: Tensor, teacher: Tensor, *, projection: Projection | None = None) -> LossTerm:
    """Angle between the student's sentence vectors and the teacher's.

    total = Σ_b (1 − cos(g^S_b W, g^T_b)), each between 0 and 2.

    Source: the embedding stage of this project's design; the per-sentence form of DistilBERT's cosine term.
    Nearest
    alternative: `sample_relation_kl`, which compares the texts of a batch with each other and so needs no
    projection.

    Args:
        student: `[B, width_S]`.
        teacher: `[B, width_T]`; never gets a gradient.
        projection: W as a matrix `[width_S, width_T]`, or a module or callable; None needs equal widths.

    Returns:
        The summed 1 − cos; the count is B.

    Raises:
        KernelError: if shapes, widths or projection do not fit.
    """
    check_rank({"student": student, "teacher": teacher}, 2, "[B, width]")
    check_alike({"student": student, "teacher": teacher}, 1)
    dtype = compute_dtype(student, teacher)
    with autocast_off(student.device):
        mapped = project(student.to(dtype), projection, teacher.shape[-1])
        total = cosine_distance(mapped, teacher.detach().to(dtype)).sum()
        return LossTerm(total, count_of(None, student, axes=1).to(dtype))
