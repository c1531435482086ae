"""MiniLM: the attention distributions and value relations of the teacher's last layer."""

from typing import Literal

from pydantic import Field

from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.options import MappingChoice, MethodOptions, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term
from limbeck.methods.terms import equal_heads, learned_map, weighted_terms
from limbeck.models.streams import StreamKey

PAPER = paper(
    "wang2020minilm",
    "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
    "Wenhui Wang, Furu Wei, Li Dong, Hangbo Bao, Nan Yang, Ming Zhou",
    2020,
    "https://arxiv.org/abs/2002.10957",
    "Advances in Neural Information Processing Systems 33",
    "section 3",
)


class MiniLMOptions(MethodOptions):
    """Options of MiniLM (arXiv 2002.10957, section 3)."""

    attention_weight: Weight = Field(1.0, description="Weight of the attention distributions (eq. 6).")
    value_weight: Weight = Field(1.0, description="Weight of the value relation (eq. 9); 0 is table 5.")
    value_transfer: Literal["relation", "vectors", "hidden"] = Field(
        "relation",
        description=(
            "Taught beside the attention: the values' relation, or through a learned map the values (table 6) or the "
            "hidden states (its supplement)."
        ),
    )
    mapping: MappingChoice = Field(
        "single", description="Student layers to teacher layers; single: last to last (section 3.1), uniform: table 7."
    )


@register_as_method(options=MiniLMOptions, citation=PAPER)
def minilm(options: MiniLMOptions, pairing: Pairing) -> list[Term]:
    """Attention distributions and value relations of the last layer; as many heads as the teacher.

    Make the two terms for every pair of layers (section 3.1 and 3.2).
    """
    heads = equal_heads(pairing, "minilm")
    relation = {"heads": heads, "causal": pairing.teacher_shape.causal}
    terms = []
    for layer, targets in resolve_mapping(options.mapping, pairing).items():
        for target in targets:
            suffix = "" if options.mapping == "single" else f"_{layer}_{target}"
            attention = _keys(("query", "key"), layer), _keys(("query", "key"), target)
            terms.append(Term("attention" + suffix, "relation_kl", *attention, options.attention_weight, relation))
            if options.value_transfer == "relation":
                values = _keys(("value", "value"), layer), _keys(("value", "value"), target)
                terms.append(Term("value_relation" + suffix, "relation_kl", *values, options.value_weight, relation))
            else:
                kind = "value" if options.value_transfer == "vectors" else "hidden"
                vectors = _keys((kind,), layer), _keys((kind,), target)
                mapped = learned_map(pairing, kind)
                terms.append(Term(kind + suffix, "hidden_mse", *vectors, options.value_weight, learned_map=mapped))
    return weighted_terms(terms, "minilm")


def _keys(kinds: tuple[str, ...], layer: int) -> tuple[StreamKey, ...]:
    return tuple(StreamKey(kind, layer) for kind in kinds)
