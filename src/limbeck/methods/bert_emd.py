"""BERT-EMD: every student layer learns from every teacher layer, as much as the earth mover's distance moves."""

from pydantic import Field

from limbeck.methods.checks import equal_heads, weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_terms import embedding_term, learned_map
from limbeck.methods.options import MethodOptions, Temperature, Weight
from limbeck.methods.pairing import LABELLED_TASKS, Pairing
from limbeck.methods.prediction_terms import hard_label_term, soft_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term, stream_keys
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey

PAPER = paper(
    key="li2020bertemd",
    title="BERT-EMD: Many-to-Many Layer Mapping for BERT Compression with Earth Mover's Distance",
    authors="Jianquan Li, Xiaokang Liu, Honghong Zhao, Ruifeng Xu, Min Yang, Yaohong Jin",
    year=2020,
    url="https://arxiv.org/abs/2010.06133",
    venue="Proceedings of EMNLP 2020",
    place="section 3",
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

    Make the two distances over all layers, of hidden states and of attention scores, the embedding term and the
    prediction terms.
    """
    student = pairing.student
    teacher = pairing.teacher_shape
    hidden = Term(
        name="hidden",
        objective="layer_emd",
        student=_of_all_layers(student, "hidden"),
        teacher=_of_all_layers(teacher, "hidden"),
        weight=options.hidden_weight,
        learned_map=learned_map(pairing),
        cost_attention=options.cost_attention,
    )
    terms = [embedding_term(pairing, weight=options.embedding_weight), hidden]
    if options.attention_weight > 0:
        heads = equal_heads(pairing, method="bert_emd", otherwise="set attention_weight: 0")
        attention = Term(
            name="attention",
            objective="attention_layer_emd",
            student=_of_all_layers(student, "query", "key"),
            teacher=_of_all_layers(teacher, "query", "key"),
            weight=options.attention_weight,
            options={"heads": heads},
            cost_attention=options.cost_attention,
        )
        terms.append(attention)
    terms.append(soft_label_term(pairing, weight=options.soft_label_weight, temperature=options.temperature))
    terms.append(hard_label_term(pairing, weight=options.hard_label_weight))
    return weighted_terms(terms, method="bert_emd")


def _of_all_layers(shape: Shape, *streams: str) -> tuple[StreamKey, ...]:
    """Return the keys of streams at every layer, layer by layer."""
    keys: list[StreamKey] = []
    for layer in range(1, shape.layers + 1):
        keys += stream_keys(*streams, layer=layer)
    return tuple(keys)
