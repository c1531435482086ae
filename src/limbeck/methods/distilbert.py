"""DistilBERT: soft labels, masked language modelling, and the direction of the last hidden states."""

from pydantic import Field

from limbeck.methods.checks import check_equal_widths, weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.options import MethodOptions, Temperature, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.prediction_terms import Positions, hard_label_term, soft_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term, stream_keys

PAPER = paper(
    key="sanh2019distilbert",
    title="DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
    authors="Victor Sanh, Lysandre Debut, Julien Chaumond, Thomas Wolf",
    year=2019,
    url="https://arxiv.org/abs/1910.01108",
    venue="arXiv preprint arXiv:1910.01108",
    place="section 3",
    kind="article",
)


class DistilBertOptions(MethodOptions):
    """Options of DistilBERT (arXiv 1910.01108, section 3)."""

    soft_label_weight: Weight = Field(5.0, description="Weight of the soft labels.")
    hard_label_weight: Weight = Field(2.0, description="Weight of masked language modelling, or of labels.")
    cosine_weight: Weight = Field(1.0, description="Weight of 1 - cos of the last hidden states.")
    temperature: Temperature = Field(2.0, description="T of the soft labels.")
    positions: Positions = Field("all", description="On text: soft labels at all positions or masked ones.")


@register_as_method(options=DistilBertOptions, citation=PAPER)
def distilbert(options: DistilBertOptions, pairing: Pairing) -> list[Term]:
    """Soft labels, masked language modelling and the cosine of last hidden states; equal widths.

    Make the three terms of section 3: L_ce of soft labels, L_mlm and L_cos. The paper names no weights; the defaults
    are those of its published code.
    """
    if options.cosine_weight > 0:
        check_equal_widths(pairing, method="distilbert", compared="hidden states", otherwise="set cosine_weight: 0")
    soft_label = soft_label_term(
        pairing,
        weight=options.soft_label_weight,
        temperature=options.temperature,
        positions=options.positions,
    )
    cosine = Term(
        name="cosine",
        objective="hidden_cosine",
        student=stream_keys("hidden", layer=pairing.student.layers),
        teacher=stream_keys("hidden", layer=pairing.teacher_shape.layers),
        weight=options.cosine_weight,
    )
    hard_label = hard_label_term(
        pairing, weight=options.hard_label_weight, is_default=options.is_default("hard_label_weight")
    )
    terms = [soft_label, hard_label, cosine]
    return weighted_terms(terms, method="distilbert")
