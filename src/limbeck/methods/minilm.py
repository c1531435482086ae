"""MiniLM: the attention distributions and value relations of the teacher's last layer."""

from typing import Literal

from pydantic import Field

from limbeck.methods.checks import equal_heads, weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.layer_terms import learned_map
from limbeck.methods.options import MappingChoice, MethodOptions, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term, stream_keys

PAPER = paper(
    key="wang2020minilm",
    title="MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
    authors="Wenhui Wang, Furu Wei, Li Dong, Hangbo Bao, Nan Yang, Ming Zhou",
    year=2020,
    url="https://arxiv.org/abs/2002.10957",
    venue="Advances in Neural Information Processing Systems 33",
    place="section 3",
)


class MiniLMOptions(MethodOptions):
    """Options of MiniLM (arXiv 2002.10957, section 3)."""

    attention_weight: Weight = Field(1.0, description="Weight of the attention distributions (eq. 6).")
    value_weight: Weight = Field(1.0, description="Weight of the value relation (eq. 9); table 5 of the paper has 0.")
    value_transfer: Literal["relation", "vectors", "hidden"] = Field(
        "relation",
        description=(
            "What is taught after the attention. relation: the relation of the values; vectors: the values, through a "
            "learned map (table 6); hidden: the hidden states, through a learned map (supplement)."
        ),
    )
    mapping: MappingChoice = Field(
        "single", description="Student layers to teacher layers; single: last to last (section 3.1), uniform: table 7."
    )


@register_as_method(options=MiniLMOptions, citation=PAPER)
def minilm(options: MiniLMOptions, pairing: Pairing) -> list[Term]:
    """Attention distributions and value relations of the last layer; as many heads as the teacher.

    L = L_AT + L_VR for every pair of layers: L_AT is the divergence of the attention distributions
    softmax(Q Kᵀ / √d_k) (section 3.1), L_VR that of the value relations softmax(V Vᵀ / √d_k) (section 3.2).
    """
    heads = equal_heads(pairing, method="minilm")
    relation = {"heads": heads, "causal": pairing.teacher_shape.causal}
    terms = []
    for layer, teacher_layers in resolve_mapping(options.mapping, pairing).items():
        for teacher_layer in teacher_layers:
            # With one pair of layers, names of terms need no layers.
            suffix = "" if options.mapping == "single" else f"_{layer}_{teacher_layer}"
            # Relations of queries and keys with one relation head for each attention head are the attention
            # distributions.
            attention = Term(
                name=f"attention{suffix}",
                objective="relation_kl",
                student=stream_keys("query", "key", layer=layer),
                teacher=stream_keys("query", "key", layer=teacher_layer),
                weight=options.attention_weight,
                options=relation,
            )
            terms.append(attention)
            if options.value_transfer == "relation":
                values = Term(
                    name=f"value_relation{suffix}",
                    objective="relation_kl",
                    student=stream_keys("value", "value", layer=layer),
                    teacher=stream_keys("value", "value", layer=teacher_layer),
                    weight=options.value_weight,
                    options=relation,
                )
            else:
                stream = "value" if options.value_transfer == "vectors" else "hidden"
                values = Term(
                    name=f"{stream}{suffix}",
                    objective="hidden_mse",
                    student=stream_keys(stream, layer=layer),
                    teacher=stream_keys(stream, layer=teacher_layer),
                    weight=options.value_weight,
                    learned_map=learned_map(pairing, stream),
                )
            terms.append(values)
    return weighted_terms(terms, method="minilm")
