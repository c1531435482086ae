"""Terms over predictions that methods share.

*Soft labels* are the teacher's scores. *Hard labels* are the labels of the rows; for text they are its masked tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import Term, stream_keys
from limbeck.methods.transforms import AnnealedScores
from limbeck.models.streams import StreamKey

if TYPE_CHECKING:
    from limbeck.kinds.kind import Kind

Positions: TypeAlias = Literal["masked", "all"]
"""Tokens of text whose scores are taught: the masked ones, or all."""


def soft_label_term(
    pairing: Pairing, *, weight: float, temperature: float = 1.0, positions: Positions = "masked"
) -> Term:
    """Make the term that teaches the teacher's scores.

    For text the term compares the distributions over the vocabulary. For labelled rows their kind of task names the
    objective: it compares the distributions over classes, or values by their squared error, which has no temperature.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        temperature: T, above 0.
        positions: Tokens whose scores are taught, for text only.
    """
    if not pairing.has_labels:
        return Term(
            name="soft_label",
            objective="soft_label_kl",
            student=_student_logits(pairing),
            teacher=_teacher_logits(pairing),
            weight=weight,
            options={"temperature": temperature},
            rows="label" if positions == "masked" else "token",
        )
    label = _kind(pairing.task).soft_label()
    options: dict[str, Any] = {}
    if label.has_temperature:
        options["temperature"] = temperature
    return Term(
        name="soft_label",
        objective=label.objective,
        student=_student_logits(pairing),
        teacher=_teacher_logits(pairing),
        weight=weight,
        options=options,
        rows=label.rows,
    )


def annealed_score_term(pairing: Pairing, *, weight: float, highest: int) -> Term:
    """Make the term that teaches the teacher's scores themselves, scaled by a temperature that falls.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        highest: The first temperature, τ_max.

    Raises:
        RecipeError: where scores are neither of classes nor a value.
    """
    if pairing.label not in ("class", "classes", "value"):
        raise RecipeError(
            "'annealing' applies only to scores of classes or of a value, but the task of this corpus is "
            f"{pairing.task}; leave 'annealing' out."
        )
    return Term(
        name="soft_label",
        objective="soft_label_mse",
        student=_student_logits(pairing),
        teacher=_teacher_logits(pairing),
        weight=weight,
        transform=AnnealedScores(highest),
    )


def hard_label_term(pairing: Pairing, *, weight: float, is_default: bool = False) -> Term:
    """Make the term that teaches the labels: masked tokens of text, else the `hard_label` of the rows' kind of task.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        is_default: Whether the weight is the method's default. The term then gets the weight 0 where rows have no
            labels, since the recipe did not ask for it.

    Raises:
        RecipeError: for a kind whose students do not learn from labels, such as rankings, unless the weight is 0.
    """
    logits = _student_logits(pairing)
    if not pairing.has_labels:
        return Term("hard_label", "masked_lm_ce", student=logits, teacher=(), weight=weight, rows="label")
    if is_default and not pairing.labelled:
        weight = 0.0
    # The objective that the rows' kind of task has for labels, if it has one.
    label = _kind(pairing.task).hard_label()
    if label is not None:
        return Term("hard_label", label.objective, student=logits, teacher=(), weight=weight, rows=label.rows)
    if weight > 0:
        raise RecipeError(
            "Rankings have no hard labels, because they learn the teacher's scores; set the weight of the hard "
            "labels to 0."
        )
    # Methods drop terms of weight 0, so the objective of this one does not matter.
    return Term("hard_label", "hard_label_ce", student=logits, teacher=(), weight=weight, rows="sample")


def _kind(name: str) -> Kind:
    """Return a kind of task."""
    # Importing the kinds imports NumPy, which a list of methods need not wait for.
    from limbeck.kinds.registry import KINDS

    return KINDS[name]


def _student_logits(pairing: Pairing) -> tuple[StreamKey, ...]:
    """The scores of the student's head."""
    return stream_keys("logits", layer=pairing.student.layers)


def _teacher_logits(pairing: Pairing) -> tuple[StreamKey, ...]:
    """The scores of the teacher's head, or those that are stored of a teacher without a model."""
    return stream_keys("logits", layer=pairing.teacher.output_layer)
