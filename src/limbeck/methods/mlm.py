"""Masked language modelling alone: what a student learns without a teacher."""

from __future__ import annotations

from limbeck.methods.composition import BERT, Method, MethodOptions, Pairing, Term, cite
from limbeck.methods.terms import hard_label_term


class MlmOptions(MethodOptions):
    """Masked language modelling has no options; `augment.mask_tokens` of the stage is the share of masked tokens."""


def compose(options: MlmOptions, pairing: Pairing) -> list[Term]:
    """Make the one term."""
    return [hard_label_term(pairing, 1.0)]


MLM: Method[MlmOptions] = Method(
    name="mlm",
    summary="Masked language modelling only: the baseline without distillation.",
    options=MlmOptions,
    compose=compose,
    citation=cite(BERT, "section 3.1"),
    tasks=("text",),
)
