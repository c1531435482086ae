"""Masked language modelling alone: what a student learns without a teacher."""

from limbeck.methods.citation import paper
from limbeck.methods.options import MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term
from limbeck.methods.terms import hard_label_term

PAPER = paper(
    "devlin2019bert",
    "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    "Jacob Devlin, Ming-Wei Chang, Kenton Lee, Kristina Toutanova",
    2019,
    "https://arxiv.org/abs/1810.04805",
    "Proceedings of NAACL-HLT 2019",
    "section 3.1",
)


class MlmOptions(MethodOptions):
    """Masked language modelling has no options; `augment.mask_tokens` of the stage is the share of masked tokens."""


@register_as_method(options=MlmOptions, citation=PAPER, tasks=("text",))
def mlm(options: MlmOptions, pairing: Pairing) -> list[Term]:
    """Masked language modelling only: the baseline without distillation.

    Make the one term.
    """
    return [hard_label_term(pairing, 1.0)]
