"""Masked language modelling alone: the training of a student without a teacher."""

from limbeck.methods.citation import paper
from limbeck.methods.options import MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.prediction_terms import hard_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term

PAPER = paper(
    key="devlin2019bert",
    title="BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    authors="Jacob Devlin, Ming-Wei Chang, Kenton Lee, Kristina Toutanova",
    year=2019,
    url="https://arxiv.org/abs/1810.04805",
    venue="Proceedings of NAACL-HLT 2019",
    place="section 3.1",
)


class MlmOptions(MethodOptions):
    """Masked language modelling has no options; `augment.mask_tokens` of the stage is the share of masked tokens."""


@register_as_method(options=MlmOptions, citation=PAPER, tasks=("text",))
def mlm(options: MlmOptions, pairing: Pairing) -> list[Term]:
    """Masked language modelling only: the baseline without distillation.

    Make the one term.
    """
    return [hard_label_term(pairing, weight=1.0)]
