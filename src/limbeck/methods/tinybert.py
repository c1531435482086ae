"""TinyBERT: embeddings, hidden states and attention scores of mapped layers."""

from pydantic import Field

from limbeck.methods.checks import weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.layer_terms import attention_score_terms, embedding_term, hidden_terms
from limbeck.methods.options import MappingChoice, MethodOptions, Temperature, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.prediction_terms import soft_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term

PAPER = paper(
    key="jiao2020tinybert",
    title="TinyBERT: Distilling BERT for Natural Language Understanding",
    authors="Xiaoqi Jiao, Yichun Yin, Lifeng Shang, Xin Jiang, Xiao Chen, Linlin Li, Fang Wang, Qun Liu",
    year=2020,
    url="https://arxiv.org/abs/1909.10351",
    venue="Findings of the Association for Computational Linguistics: EMNLP 2020",
    place="section 3, equations 7 to 11",
)


class TinyBertOptions(MethodOptions):
    """Options of TinyBERT (arXiv 1909.10351, section 3)."""

    added = frozenset({"one_map"})
    """Options that came after the first release; see `MethodOptions.added`."""

    mapping: MappingChoice = Field("uniform", description="Student layers to teacher layers.")
    embedding_weight: Weight = Field(1.0, description="Weight of the embedding outputs (its eq. 9).")
    hidden_weight: Weight = Field(1.0, description="Weight of the hidden states (its eq. 8).")
    attention_weight: Weight = Field(
        1.0, description="Weight of the attention scores before softmax (its eq. 7); needs equal heads."
    )
    soft_label_weight: Weight = Field(
        0.0, description="Weight of the soft labels (its eq. 10): 1 in a second, task-specific stage."
    )
    temperature: Temperature = Field(1.0, description="T of the soft labels.")
    one_map: bool = Field(False, description="One W_h for all pairs of layers, as eq. 8 is printed; else one per pair.")


@register_as_method(options=TinyBertOptions, citation=PAPER)
def tinybert(options: TinyBertOptions, pairing: Pairing) -> list[Term]:
    """Embeddings, hidden states and attention scores, layer by layer; as many heads as the teacher.

    Make the terms of the embeddings, MSE(E^S W_e, E^T) (eq. 9), of the hidden states, MSE(H^S W_h, H^T) (eq. 8), of
    the attention scores, MSE(A^S, A^T) (eq. 7), and of the soft labels (eq. 10). Every pair of layers has its own W_h,
    or all have one with `one_map`.
    """
    mapping = resolve_mapping(options.mapping, pairing)
    terms = [embedding_term(pairing, weight=options.embedding_weight)]
    terms += hidden_terms(pairing, mapping, weight=options.hidden_weight, one_map=options.one_map)
    if options.attention_weight > 0:
        terms += attention_score_terms(pairing, mapping, weight=options.attention_weight, method="tinybert")
    terms.append(soft_label_term(pairing, weight=options.soft_label_weight, temperature=options.temperature))
    return weighted_terms(terms, method="tinybert")
