"""The terms on output scores, as the task has them: vocabulary, classes, a value, or answer positions."""

from __future__ import annotations

from typing import Literal, TypeAlias

from limbeck.methods.composition import Pairing, Term
from limbeck.models.streams import StreamKey

Positions: TypeAlias = Literal["masked", "all"]


def soft_label_term(pairing: Pairing, weight: float, temperature: float = 1.0, positions: Positions = "masked") -> Term:
    """Make the term that teaches the teacher's scores.

    Text: the vocabulary's distribution at the masked or at all positions. Classification: the distribution over
    classes. Question answering: the distributions of start and end over the tokens. Regression: the squared error of
    the value, for which a temperature means nothing.

    Args:
        pairing: The two models and the task.
        weight: Coefficient.
        temperature: T, above 0.
        positions: For text only.
    """
    keys = _logits(pairing)
    if pairing.task == "regression":
        return Term("soft_label", "soft_label_mse", *keys, weight)
    rows = {"masked": "label", "all": "token"}[positions] if pairing.task == "text" else "sample"
    options = {"temperature": temperature}
    return Term("soft_label", "soft_label_kl", *keys, weight, options, rows=rows)  # type: ignore[arg-type]


def hard_label_term(pairing: Pairing, weight: float) -> Term:
    """Make the term that teaches the labels: masked tokens, classes, values, or answer positions."""
    objective = {"text": "masked_lm_ce", "regression": "hard_label_mse"}.get(pairing.task, "hard_label_ce")
    return Term("hard_label", objective, _logits(pairing)[0], (), weight)


def _logits(pairing: Pairing) -> tuple[tuple[StreamKey], tuple[StreamKey]]:
    return (StreamKey("logits", pairing.student.layers),), (StreamKey("logits", pairing.teacher.layers),)
