"""Terms on the labels of a task: classes, answer positions, values; and on the teacher's values."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from limbeck.errors import KernelError
from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.objectives.arguments import blank, check_alike, check_labels, check_rank, count_of
from limbeck.objectives.labels import IGNORED_LABEL
from limbeck.objectives.loss_term import LossTerm


def hard_label_ce(logits: Tensor, labels: Tensor) -> LossTerm:
    """Cross entropy of the student's scores with the labels of its task.

    total = -sum log softmax(z_r)[label_r] over rows whose label is not -100, in nats.

    Source: BERT-PKD (Sun et al. 2019) section 3.1; the usual fine-tuning loss. Nearest alternatives: `masked_lm_ce`,
    the same on a vocabulary; `soft_label_kl`, with the teacher's distribution as label.

    Args:
        logits: `[B, classes]`, or `[B, 2, L]` for the start and end of an answer; carries gradient. -inf excludes a
            class, unless it is the label.
        labels: Whole numbers in 0 to classes - 1, or -100 for a row that does not count: `[B]`, or `[B, 2]`.

    Returns:
        The summed cross entropy; the count is the rows with a label.

    Raises:
        KernelError: if the shapes do not fit, or (where it can be read without a stall) a label is out of range.
    """
    rows = logits.dim() - 1
    if rows < 1:
        raise KernelError(f"logits has shape {list(logits.shape)}; it has to be [rows..., classes].")
    check_rank({"logits": logits}, rows + 1, "[rows..., classes]")
    check_labels(labels, logits.shape[:-1])
    labelled = labels != IGNORED_LABEL
    if labels.device.type == "cpu" and labels.numel():
        low, high = (int(x) for x in labels.masked_fill(~labelled, 0).aminmax())
        if low < 0 or high >= logits.shape[-1]:
            wrong = low if low < 0 else high
            raise KernelError(
                f"label {wrong} is not in 0 to {logits.shape[-1] - 1}, nor {IGNORED_LABEL}; check the corpus."
            )
    dtype = compute_dtype(logits)
    with autocast_off(logits.device):
        scores = blank(logits, labelled, dtype).flatten(0, -2)
        total = F.cross_entropy(scores, labels.flatten().long(), ignore_index=IGNORED_LABEL, reduction="sum")
        return LossTerm(total, labelled.sum().to(dtype))


def hard_label_mse(values: Tensor, labels: Tensor) -> LossTerm:
    """Squared error of the student's value with the label of its task.

    total = sum_b (z_b - y_b)^2.

    Source: the usual fine-tuning loss of regression tasks such as STS-B. Nearest alternative: `soft_label_mse`, with
    the teacher's value as label.

    Args:
        values: `[B, 1]`; carries gradient.
        labels: `[B]`, floating point.

    Returns:
        The summed squared error; the count is B.

    Raises:
        KernelError: if the shapes do not fit or a label is no floating-point number.
    """
    check_rank({"values": values}, 2, "[B, 1]")
    check_rank({"labels": labels}, 1, "[B]")
    if values.shape != (len(labels), 1):
        raise KernelError(
            f"values has shape {list(values.shape)} and labels {list(labels.shape)}; they have to be [B, 1] and [B]."
        )
    dtype = compute_dtype(values)
    with autocast_off(values.device):
        total = (values[:, 0].to(dtype) - labels.to(dtype)).square().sum()
        return LossTerm(total, count_of(None, values, axes=1).to(dtype))


def soft_label_mse(student_values: Tensor, teacher_values: Tensor) -> LossTerm:
    """Squared error of the student's value with the teacher's, for tasks without classes.

    total = sum (z^S - z^T)^2 over samples and values.

    Source: comparing scores themselves is Ba and Caruana's form of distillation (2014); a softmax over the one output
    of a regression would be 1 whatever it is. Nearest alternative: `soft_label_kl`, for classes.

    Args:
        student_values: `[B, values]`, normally one; carries gradient.
        teacher_values: The same shape; never gets a gradient.

    Returns:
        The summed squared error; the count is B x values.

    Raises:
        KernelError: if the shapes do not fit.
    """
    pair = {"student_values": student_values, "teacher_values": teacher_values}
    check_rank(pair, 2, "[B, values]")
    check_alike(pair, 2)
    dtype = compute_dtype(student_values, teacher_values)
    with autocast_off(student_values.device):
        total = (student_values.to(dtype) - teacher_values.detach().to(dtype)).square().sum()
        return LossTerm(total, count_of(None, student_values, student_values.shape[1], axes=1).to(dtype))
