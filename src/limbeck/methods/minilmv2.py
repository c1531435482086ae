"""MiniLMv2: self-attention relations of one teacher layer, taught to the student's last layer."""

from collections.abc import Collection, Iterable, Mapping

from pydantic import Field

from limbeck.errors import RecipeError, suggestion
from limbeck.methods.checks import check_relation_heads, check_rotary_pairs, check_whole_rotary_heads
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import most_relation_heads, resolve_layer
from limbeck.methods.options import HeadCount, LayerChoice, MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term, stream_keys
from limbeck.models.families import Shape

_STREAMS = ("query", "key", "value")
PAIRS = tuple(f"{first}-{second}" for first in _STREAMS for second in _STREAMS)

PAPER = paper(
    key="wang2021minilmv2",
    title="MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained Transformers",
    authors="Wenhui Wang, Hangbo Bao, Shaohan Huang, Li Dong, Furu Wei",
    year=2021,
    url="https://arxiv.org/abs/2012.15828",
    venue="Findings of the Association for Computational Linguistics: ACL-IJCNLP 2021",
    place="section 3, equations 5 to 8",
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
        "or the largest divisor of both widths not above it; with rotary positions, of both models' attention heads.",
    )
    teacher_layer: LayerChoice = Field(
        "auto", description="Teacher layer that is read; auto: the last, 21 or 19 for large teachers (section 3.2)."
    )
    student_layer: LayerChoice = Field("last", description="Student layer that is taught (section 3.2).")


def relation_heads_for(shapes: Collection[Shape], streams: Iterable[str], *, teacher: Shape) -> int:
    """Choose the number of relation heads: 48, or 64 for 1024-wide teachers, lowered until it fits all streams.

    It has to divide the width of each stream; of queries and keys that are turned by their position (rotary
    embedding), the number of attention heads, see `most_relation_heads`.

    Args:
        shapes: The shapes of all models that are compared.
        streams: Names of the streams that are related, such as `"query"`.
        teacher: The teacher's shape.

    Source:
        MiniLMv2 section 4.1; the lowering is ours, for widths and positions the paper does not use. Its equations 1 to
        3 have Q and K before any rotation; attention sees them after it, and so do relations here.
        `benchmarks/rotary_relations.py` compares the two.
    """
    limits = {most_relation_heads(shape, stream) for shape in shapes for stream in streams}
    heads = 64 if teacher.hidden >= 1024 else 48
    # The loop ends at 1 at the latest, which divides every number.
    while any(limit % heads != 0 for limit in limits):
        heads -= 1
    return heads


@register_as_method(options=MiniLMv2Options, citation=PAPER)
def minilmv2(options: MiniLMv2Options, pairing: Pairing) -> list[Term]:
    """Relations between queries, keys and values of one teacher layer; any number of student heads.

    L = Σ_ij α_ij L_ij (eq. 5), where L_ij is the divergence of the student's relation R_ij from the teacher's.
    R_ij = softmax(A_i A_jᵀ / √d_r) relates A_i and A_j, two of queries, keys and values, in relation heads of size d_r
    (eq. 6 to 8). Make one term for each pair of weight α_ij above 0. Where positions are rotary, queries and keys are
    related as attention sees them, after rotation, in relation heads of whole attention heads.
    """
    student = pairing.student
    teacher = pairing.teacher_shape
    weights = _weights_of_pairs(options.relations)

    # Relation heads have to fit all streams that are related, of both models.
    streams = sorted({stream for pair in weights for stream in pair.split("-")})
    best = relation_heads_for((student, teacher), streams, teacher=teacher)
    heads = best if options.relation_heads == "auto" else options.relation_heads
    check_relation_heads(pairing, heads, streams, example=best)
    check_whole_rotary_heads(pairing, heads, streams, example=best)
    check_rotary_pairs(pairing, weights)

    student_layer = resolve_layer(options.student_layer, student, "student")
    teacher_layer = resolve_layer(options.teacher_layer, teacher, "teacher")
    terms = []
    for pair, weight in weights.items():
        first, second = pair.split("-")
        term = Term(
            name=f"{first}_{second}",
            objective="relation_kl",
            student=stream_keys(first, second, layer=student_layer),
            teacher=stream_keys(first, second, layer=teacher_layer),
            weight=weight,
            options={"heads": heads, "causal": teacher.causal},
        )
        terms.append(term)
    return terms


def _weights_of_pairs(relations: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of the pairs whose weight is above 0.

    Args:
        relations: Pair, such as `query-key`, to weight.

    Raises:
        RecipeError: for an unknown pair, a negative weight, or no pair with a weight.
    """
    for pair, weight in relations.items():
        if pair not in PAIRS:
            raise RecipeError(f"Unknown relation '{pair}'.{suggestion(pair, PAIRS)}")
        if weight < 0:
            raise RecipeError(
                f"Relation '{pair}' has the weight {weight}, but a weight must be 0 or more; change the weight."
            )
    weights = {pair: weight for pair, weight in relations.items() if weight > 0}
    if not weights:
        raise RecipeError("Every relation has the weight 0; give at least one pair a weight above 0.")
    return weights
