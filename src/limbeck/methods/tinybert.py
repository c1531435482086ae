"""TinyBERT: embeddings, hidden states and attention scores of mapped layers."""

from __future__ import annotations

from pydantic import Field

from limbeck.methods.composition import TINYBERT as PAPER
from limbeck.methods.composition import MappingChoice, Method, MethodOptions, Pairing, Term, cite
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.terms import attention_score_terms, embedding_term, hidden_terms, kept, soft_label_term


class TinyBertOptions(MethodOptions):
    """Options of TinyBERT (arXiv 1909.10351, section 3)."""

    mapping: MappingChoice = Field(default="uniform", description="Student layers to teacher layers.")
    embedding_weight: float = Field(default=1.0, ge=0, description="Weight of the embedding outputs (its eq. 9).")
    hidden_weight: float = Field(default=1.0, ge=0, description="Weight of the hidden states (its eq. 8).")
    attention_weight: float = Field(
        default=1.0, ge=0, description="Weight of the attention scores before softmax (its eq. 7); needs equal heads."
    )
    soft_label_weight: float = Field(
        default=0.0, ge=0, description="Weight of the soft labels (its eq. 10): 1 in a second, task-specific stage."
    )
    temperature: float = Field(default=1.0, gt=0, description="T of the soft labels.")


def compose(options: TinyBertOptions, pairing: Pairing) -> list[Term]:
    """Make the embedding, hidden and attention terms; every pair of layers has a map of its own."""
    mapping = resolve_mapping(options.mapping, pairing)
    terms = [embedding_term(pairing, options.embedding_weight)]
    terms += hidden_terms(pairing, mapping, options.hidden_weight)
    if options.attention_weight > 0:
        terms += attention_score_terms(pairing, mapping, options.attention_weight, "tinybert")
    terms.append(soft_label_term(pairing, options.soft_label_weight, options.temperature))
    return kept(terms, "tinybert")


TINYBERT: Method[TinyBertOptions] = Method(
    name="tinybert",
    summary="Embeddings, hidden states and attention scores, layer by layer; as many heads as the teacher.",
    options=TinyBertOptions,
    compose=compose,
    citation=cite(PAPER, "section 3, equations 7 to 11"),
)
