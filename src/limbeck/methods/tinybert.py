"""TinyBERT: embeddings, hidden states and attention scores of mapped layers."""

from pydantic import Field

from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.options import MappingChoice, MethodOptions, Temperature, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term
from limbeck.methods.terms import attention_score_terms, embedding_term, hidden_terms, soft_label_term, weighted_terms

PAPER = paper(
    "jiao2020tinybert",
    "TinyBERT: Distilling BERT for Natural Language Understanding",
    "Xiaoqi Jiao, Yichun Yin, Lifeng Shang, Xin Jiang, Xiao Chen, Linlin Li, Fang Wang, Qun Liu",
    2020,
    "https://arxiv.org/abs/1909.10351",
    "Findings of the Association for Computational Linguistics: EMNLP 2020",
    "section 3, equations 7 to 11",
)


class TinyBertOptions(MethodOptions):
    """Options of TinyBERT (arXiv 1909.10351, section 3)."""

    added = frozenset({"one_map"})

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

    Make the embedding, hidden and attention terms; every pair of layers has its map, or all have one with `one_map`.
    """
    mapping = resolve_mapping(options.mapping, pairing)
    terms = [embedding_term(pairing, options.embedding_weight)]
    terms += hidden_terms(pairing, mapping, options.hidden_weight, one_map=options.one_map)
    if options.attention_weight > 0:
        terms += attention_score_terms(pairing, mapping, options.attention_weight, "tinybert")
    terms.append(soft_label_term(pairing, options.soft_label_weight, options.temperature))
    return weighted_terms(terms, "tinybert")
