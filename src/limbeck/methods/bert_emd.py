"""BERT-EMD: every student layer learns from every teacher layer, as much as the earth mover's distance moves."""

from pydantic import Field

from limbeck.methods.citation import paper
from limbeck.methods.options import MethodOptions, Temperature, Weight
from limbeck.methods.pairing import LABELLED_TASKS, Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term
from limbeck.methods.terms import (
    embedding_term,
    equal_heads,
    hard_label_term,
    learned_map,
    soft_label_term,
    weighted_terms,
)
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey

PAPER = paper(
    "li2020bertemd",
    "BERT-EMD: Many-to-Many Layer Mapping for BERT Compression with Earth Mover's Distance",
    "Jianquan Li, Xiaokang Liu, Honghong Zhao, Ruifeng Xu, Min Yang, Yaohong Jin",
    2020,
    "https://arxiv.org/abs/2010.06133",
    "Proceedings of EMNLP 2020",
    "section 3",
)


class BertEmdOptions(MethodOptions):
    """Options of BERT-EMD (arXiv 2010.06133, section 3)."""

    embedding_weight: Weight = Field(1.0, description="Weight of the embedding outputs.")
    hidden_weight: Weight = Field(1.0, description="Weight of the distance between hidden states.")
    attention_weight: Weight = Field(
        1.0, description="Weight of the distance between attention scores; needs equal heads."
    )
    soft_label_weight: Weight = Field(1.0, description="Weight of the soft labels.")
    hard_label_weight: Weight = Field(0.0, description="Weight of the hard labels.")
    temperature: Temperature = Field(1.0, description="T of the soft labels.")
    cost_attention: float | None = Field(
        10.0,
        gt=0,
        description="Temperature of the cost attention, which shifts weight to layers of low cost; "
        "null keeps all layers equal.",
    )


@register_as_method(options=BertEmdOptions, citation=PAPER, tasks=(*LABELLED_TASKS, "text"))
def bert_emd(options: BertEmdOptions, pairing: Pairing) -> list[Term]:
    """All layers with all layers by the earth mover's distance; as many heads as the teacher.

    Make the two distances over all layers, the embedding term and the prediction terms.
    """
    student, teacher = pairing.student, pairing.teacher_shape
    hidden, attention = (
        (_layers(student, *kinds), _layers(teacher, *kinds)) for kinds in (("hidden",), ("query", "key"))
    )
    maps, shift = learned_map(pairing), options.cost_attention
    terms = [
        embedding_term(pairing, options.embedding_weight),
        Term("hidden", "layer_emd", *hidden, options.hidden_weight, learned_map=maps, cost_attention=shift),
    ]
    if options.attention_weight > 0:
        heads = {"heads": equal_heads(pairing, "bert_emd", "set attention_weight: 0")}
        weight = options.attention_weight
        terms.append(Term("attention", "attention_layer_emd", *attention, weight, heads, cost_attention=shift))
    terms.append(soft_label_term(pairing, options.soft_label_weight, options.temperature))
    terms.append(hard_label_term(pairing, options.hard_label_weight))
    return weighted_terms(terms, "bert_emd")


def _layers(shape: Shape, *kinds: str) -> tuple[StreamKey, ...]:
    return tuple(StreamKey(kind, layer) for layer in range(1, shape.layers + 1) for kind in kinds)
