"""Terms on output scores: the teacher's soft labels, and the hard labels of masked language modelling."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.objectives.arguments import (
    as_mask,
    blank,
    check_alike,
    check_labels,
    check_rank,
    check_temperature,
    count_of,
)
from limbeck.objectives.loss_term import LossTerm

IGNORED_LABEL = -100


def soft_label_kl(
    student_logits: Tensor, teacher_logits: Tensor, *, temperature: float = 1.0, valid: Tensor | None = None
) -> LossTerm:
    """Divergence of the student's output distribution from the teacher's.

    total = T² Σ KL(softmax(z^T/T) ‖ softmax(z^S/T)) over valid rows, in nats, 0 at equality. T² keeps the size of the
    gradient when T changes.

    Source: comparative study §3, eq. 5 (there as a cross entropy, which differs by the teacher's entropy and has the
    same gradient); MLKD-BERT eq. 18 (printed without T²); DistilBERT §3. Nearest alternative: `masked_lm_ce`, with
    hard labels.

    Args:
        student_logits: `[..., V]`: `[B, L, V]` over a vocabulary, `[B, classes]`, or `[B, L]` over answer positions.
        teacher_logits: The same shape; never gets a gradient. −inf excludes a class.
        temperature: T, above 0.
        valid: Rows that count, bool or 0/1, in the shape of the logits without their last axis; None means all.

    Returns:
        The summed divergence; the count is valid rows.

    Raises:
        KernelError: if shapes, mask or temperature do not fit.
    """
    rows = student_logits.dim() - 1
    if rows < 1:
        raise KernelError(f"student_logits has shape {list(student_logits.shape)}; it has to be [rows..., classes].")
    logits = {"student_logits": student_logits, "teacher_logits": teacher_logits}
    check_rank(logits, rows + 1, "as student_logits is")
    check_alike(logits, rows + 1)
    check_temperature(temperature)
    mask, dtype = as_mask(valid, student_logits, rows), compute_dtype(student_logits, teacher_logits)
    with autocast_off(student_logits.device):
        student, teacher = (
            (blank(x, mask, dtype) / temperature).log_softmax(-1) for x in (student_logits, teacher_logits.detach())
        )
        share = teacher.exp()
        # 0 · (−inf − x) would be NaN for an excluded class.
        total = torch.where(share > 0, share * (teacher - student), 0.0).sum() * temperature**2
        return LossTerm(total, count_of(mask, student_logits, axes=rows).to(dtype))


def masked_lm_ce(logits: Tensor, labels: Tensor) -> LossTerm:
    """Cross entropy of the student's scores at the masked positions.

    total = −Σ log softmax(z_t)[label_t] over positions whose label is not −100, in nats.

    Source: DistilBERT §3 (its masked language modelling loss); the `mlm` baseline. Nearest alternative:
    `soft_label_kl`, with the teacher's distribution as label.

    Args:
        logits: `[B, L, V]`; carries gradient.
        labels: Whole numbers in 0 … V − 1, or −100 where nothing was masked, `[B, L]`.

    Returns:
        The summed cross entropy; the count is the labelled positions.

    Raises:
        KernelError: if the shapes do not fit, or (where it can be read without a stall) a label is out of range.
    """
    check_rank({"logits": logits}, 3, "[B, L, V]")
    check_labels(labels, logits.shape[:2])
    if labels.device.type == "cpu" and labels.numel():
        low, high = (int(x) for x in labels.masked_fill(labels == IGNORED_LABEL, 0).aminmax())
        if low < 0 or high >= logits.shape[-1]:
            wrong = low if low < 0 else high
            raise KernelError(
                f"label {wrong} is not in 0 … {logits.shape[-1] - 1}, nor {IGNORED_LABEL}; check tokenizer."
            )
    dtype, labelled = compute_dtype(logits), labels != IGNORED_LABEL
    with autocast_off(logits.device):
        scores = blank(logits, labelled, dtype).flatten(0, 1)
        total = F.cross_entropy(scores, labels.flatten().long(), ignore_index=IGNORED_LABEL, reduction="sum")
        return LossTerm(total, labelled.sum().to(dtype))
