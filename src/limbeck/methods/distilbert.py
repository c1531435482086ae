"""DistilBERT: soft labels, masked language modelling, and the direction of the last hidden states."""

from __future__ import annotations

from pydantic import Field

from limbeck.errors import RecipeError
from limbeck.methods.composition import DISTILBERT as PAPER
from limbeck.methods.composition import Method, MethodOptions, Pairing, Term, cite
from limbeck.methods.terms import Positions, hard_label_term, kept, soft_label_term
from limbeck.models.streams import StreamKey


class DistilBertOptions(MethodOptions):
    """Options of DistilBERT (arXiv 1910.01108, section 3)."""

    soft_label_weight: float = Field(default=5.0, ge=0, description="Weight of the soft labels.")
    hard_label_weight: float = Field(
        default=2.0, ge=0, description="Weight of masked language modelling, or of labels."
    )
    cosine_weight: float = Field(default=1.0, ge=0, description="Weight of 1 - cos of the last hidden states.")
    temperature: float = Field(default=2.0, gt=0, description="T of the soft labels.")
    positions: Positions = Field(default="all", description="On text: soft labels at all positions or masked ones.")


def compose(options: DistilBertOptions, pairing: Pairing) -> list[Term]:
    """Make the three terms of section 3; the paper names no weights, these are those of its published code."""
    student, teacher = pairing.student, pairing.teacher
    if options.cosine_weight > 0 and student.hidden != teacher.hidden:
        raise RecipeError(
            f"distilbert compares hidden states without a map, so the student has to be {teacher.hidden} wide as the "
            f"teacher, not {student.hidden}; change student.shape or set cosine_weight: 0."
        )
    hidden = (StreamKey("hidden", student.layers),), (StreamKey("hidden", teacher.layers),)
    terms = [
        soft_label_term(pairing, options.soft_label_weight, options.temperature, options.positions),
        hard_label_term(pairing, options.hard_label_weight),
        Term("cosine", "hidden_cosine", *hidden, options.cosine_weight),
    ]
    return kept(terms, "distilbert")


DISTILBERT: Method[DistilBertOptions] = Method(
    name="distilbert",
    summary="Soft labels, masked language modelling and the cosine of last hidden states; equal widths.",
    options=DistilBertOptions,
    compose=compose,
    citation=cite(PAPER, "section 3"),
)
