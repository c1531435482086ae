"""One vector per text: sentence embeddings and CLS vectors."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

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
    """
    check_rank({"student_cls": student_cls, "teacher_cls": teacher_cls}, 2, "[B, width]")
    check_alike({"student_cls": student_cls, "teacher_cls": teacher_cls}, 1)
    project(student_cls, None, teacher_cls.shape[-1])
    dtype = compute_dtype(student_cls, teacher_cls)
    with autocast_off(student_cls.device):
        difference = F.normalize(student_cls.to(dtype), dim=-1) - F.normalize(teacher_cls.detach().to(dtype), dim=-1)
        return LossTerm(difference.square().sum(), count_of(None, student_cls, axes=1).to(dtype))
