"""The teacher's soft labels without logits of all tokens, for vocabularies of any size."""

from __future__ import annotations

from torch import Tensor

from limbeck.errors import KernelError
from limbeck.kernels.soft_label_chunks import Head, soft_label_kl_chunked
from limbeck.objectives.arguments import as_mask, check_alike, check_rank, check_temperature, count_of
from limbeck.objectives.loss_term import LossTerm


def soft_label_kl_from_hidden(
    student_hidden: Tensor,
    student_weight: Tensor,
    teacher_hidden: Tensor,
    teacher_weight: Tensor,
    *,
    student_bias: Tensor | None = None,
    teacher_bias: Tensor | None = None,
    temperature: float = 1.0,
    valid: Tensor | None = None,
) -> LossTerm:
    """Divergence of the student's output distribution from the teacher's, from what their last layers multiply.

    total = T² Σ KL(softmax(z^T/T) ‖ softmax(z^S/T)) over valid rows, z = hidden · weightᵀ + bias, in nats, 0 at
    equality. It equals `soft_label_kl` of the logits and has no second derivative. Logits exist for a chunk of rows
    at a time: two chunks of 64 MiB on a CPU, for which the weight's gradient (float32 `[V, width_S]`) is made in the
    forward pass. Matmuls run in bfloat16 where a model's hidden vectors and weight both are, and in float32 (float64)
    otherwise; the softmax never in less than float32.

    Source: as `soft_label_kl`: comparative study §3, eq. 5; DistilBERT §3. Nearest alternative: `soft_label_kl`, where
    there are logits already or classes are few.

    Args:
        student_hidden: What the student's output layer multiplies (after the head's own transform, if it has one),
            `[..., width_S]`; carries gradient.
        student_weight: `[V, width_S]`; carries gradient, which adds up where it is tied to the embeddings.
        teacher_hidden: The same of the teacher, `[..., width_T]`; never gets a gradient.
        teacher_weight: `[V, width_T]`; never gets a gradient.
        student_bias: `[V]`; carries gradient. −inf excludes a class.
        teacher_bias: `[V]`; never gets a gradient. −inf excludes a class.
        temperature: T, above 0.
        valid: Rows that count, bool or 0/1, in the shape of the hidden vectors without their last axis; None means
            all.

    Returns:
        The summed divergence; the count is valid rows.

    Raises:
        KernelError: if shapes, devices, mask or temperature do not fit, or if a second derivative is asked for.
    """
    rows = student_hidden.dim() - 1
    if rows < 1:
        raise KernelError(f"student_hidden has shape {list(student_hidden.shape)}; it has to be [rows..., width].")
    hidden = {"student_hidden": student_hidden, "teacher_hidden": teacher_hidden}
    check_rank(hidden, rows + 1, "[rows..., width], with as many axes as student_hidden")
    check_alike(hidden, rows)
    _check_head("student", student_hidden, student_weight, student_bias)
    _check_head("teacher", teacher_hidden, teacher_weight, teacher_bias)
    classes = len(student_weight)
    if len(teacher_weight) != classes:
        raise KernelError(
            f"student_weight has {classes} rows and teacher_weight {len(teacher_weight)}; they have to be the same "
            "classes: cut padding rows off."
        )
    check_temperature(temperature)
    mask = as_mask(valid, student_hidden, rows)
    total = soft_label_kl_chunked(
        Head(student_hidden.flatten(0, -2), student_weight, student_bias),
        Head(teacher_hidden.flatten(0, -2), teacher_weight, teacher_bias),
        temperature,
        None if mask is None else mask.flatten(),
    )
    return LossTerm(total, count_of(mask, student_hidden, axes=rows).to(total.dtype))


def _check_head(model: str, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Check a model's output weight and bias against each other and its hidden vectors."""
    check_rank({f"{model}_weight": weight}, 2, "[V, width]")
    if weight.shape[1] != hidden.shape[-1] or not len(weight):
        raise KernelError(
            f"{model}_weight has shape {list(weight.shape)}; it has to be [V, {hidden.shape[-1]}], V classes as wide "
            f"as {model}_hidden."
        )
    parts = {f"{model}_hidden": hidden, f"{model}_weight": weight}
    if bias is not None:
        parts[f"{model}_bias"] = bias
        check_rank({f"{model}_bias": bias}, 1, "[V]")
        if len(bias) != len(weight):
            raise KernelError(f"{model}_bias has shape {list(bias.shape)}; it has to be [{len(weight)}].")
    # No axes, which leaves the device.
    check_alike(parts, 0)
