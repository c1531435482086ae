"""DistilBERT: soft labels, masked language modelling, and the direction of the last hidden states."""

from pydantic import Field

from limbeck.methods.citation import paper
from limbeck.methods.options import MethodOptions, Temperature, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term
from limbeck.methods.terms import Positions, check_equal_widths, hard_label_term, soft_label_term, weighted_terms
from limbeck.models.streams import StreamKey

PAPER = paper(
    "sanh2019distilbert",
    "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
    "Victor Sanh, Lysandre Debut, Julien Chaumond, Thomas Wolf",
    2019,
    "https://arxiv.org/abs/1910.01108",
    "arXiv preprint arXiv:1910.01108",
    "section 3",
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

    Make the three terms of section 3; the paper names no weights, these are those of its published code.
    """
    if options.cosine_weight > 0:
        check_equal_widths(pairing, "distilbert", "hidden states", "set cosine_weight: 0")
    hidden = (StreamKey("hidden", pairing.student.layers),), (StreamKey("hidden", pairing.teacher_shape.layers),)
    terms = [
        soft_label_term(pairing, options.soft_label_weight, options.temperature, options.positions),
        hard_label_term(pairing, options.hard_label_weight),
        Term("cosine", "hidden_cosine", *hidden, options.cosine_weight),
    ]
    return weighted_terms(terms, "distilbert")
