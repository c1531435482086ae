"""MiniLMv2: self-attention relations of one teacher layer, taught to the student's last layer."""

from collections.abc import Collection

from pydantic import Field

from limbeck.errors import RecipeError, suggestion
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_layer, stream_width
from limbeck.methods.options import HeadCount, LayerChoice, MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term
from limbeck.methods.terms import check_relation_heads
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey

_PARTS = ("query", "key", "value")
PAIRS = tuple(f"{first}-{second}" for first in _PARTS for second in _PARTS)

PAPER = paper(
    "wang2021minilmv2",
    "MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained Transformers",
    "Wenhui Wang, Hangbo Bao, Shaohan Huang, Li Dong, Furu Wei",
    2021,
    "https://arxiv.org/abs/2012.15828",
    "Findings of the Association for Computational Linguistics: ACL-IJCNLP 2021",
    "section 3, equations 5 to 8",
)


class MiniLMv2Options(MethodOptions):
    """Options of MiniLMv2 (arXiv 2012.15828, section 3)."""

    relations: dict[str, float] = Field(
        {"query-query": 1.0, "key-key": 1.0, "value-value": 1.0},
        description="Relation pair to weight (alpha in eq. 5); any of the nine pairs of query, key and value.",
    )
    relation_heads: HeadCount = Field(
        "auto",
        description="Number of relation heads; auto: 64 for 1024-wide teachers, else 48 (section 4.1), "
        "or the largest divisor of both widths not above it.",
    )
    teacher_layer: LayerChoice = Field(
        "auto", description="Teacher layer that is read; auto: the last, 21 or 19 for large teachers (section 3.2)."
    )
    student_layer: LayerChoice = Field("last", description="Student layer that is taught (section 3.2).")


def relation_heads_for(teacher: Shape, widths: Collection[int]) -> int:
    """Choose the number of relation heads: 48, or 64 for 1024-wide teachers, lowered until it divides all widths.

    Args:
        teacher: The teacher's shape.
        widths: Widths of the streams that are related, of both models.

    Source:
        MiniLMv2 section 4.1; the lowering is ours, for widths the paper does not use.
    """
    wanted = 64 if teacher.hidden >= 1024 else 48
    return next(heads for heads in range(wanted, 0, -1) if all(width % heads == 0 for width in widths))


@register_as_method(options=MiniLMv2Options, citation=PAPER)
def minilmv2(options: MiniLMv2Options, pairing: Pairing) -> list[Term]:
    """Relations between queries, keys and values of one teacher layer; any number of student heads.

    Make one relation term for every weighted pair (eq. 5-8).
    """
    student, teacher = pairing.student, pairing.teacher_shape
    for pair, weight in options.relations.items():
        if pair not in PAIRS:
            raise RecipeError(f"Unknown relation '{pair}'.{suggestion(pair, PAIRS)}")
        if weight < 0:
            raise RecipeError(f"Relation '{pair}' has the weight {weight}; give 0 or more.")
    weighted = {pair: weight for pair, weight in options.relations.items() if weight > 0}
    if not weighted:
        raise RecipeError("Every relation has the weight 0; give at least one pair a weight above 0.")
    parts = {part for pair in weighted for part in pair.split("-")}
    widths = {stream_width(shape, part) for shape in (student, teacher) for part in parts}
    best = relation_heads_for(teacher, widths)
    heads = best if options.relation_heads == "auto" else options.relation_heads
    check_relation_heads(pairing, heads, sorted(parts), f" such as {best}")
    student_layer = resolve_layer(options.student_layer, student, "student")
    teacher_layer = resolve_layer(options.teacher_layer, teacher, "teacher")
    relation = {"heads": heads, "causal": teacher.causal}
    terms = []
    for pair, weight in weighted.items():
        student_keys, teacher_keys = (
            tuple(StreamKey(part, layer) for part in pair.split("-")) for layer in (student_layer, teacher_layer)
        )
        terms.append(Term(pair.replace("-", "_"), "relation_kl", student_keys, teacher_keys, weight, relation))
    return terms
