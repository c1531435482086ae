"""DirectMiniLM: queries, keys and values themselves, head by head through learned maps."""

from pydantic import Field

from limbeck.methods.checks import check_relation_heads
from limbeck.methods.citation import COMPARATIVE_STUDY, cite
from limbeck.methods.layer_mapping import resolve_layer, stream_width
from limbeck.methods.options import HeadCount, LayerChoice, MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term, stream_keys

_STREAMS = ("query", "key", "value")


class DirectMiniLMOptions(MethodOptions):
    """Options of DirectMiniLM (arXiv 2310.08797, section 3)."""

    relation_heads: HeadCount = Field(
        "auto", description="Number of heads, each with its own map; auto: the teacher's attention heads (appendix B)."
    )
    teacher_layer: LayerChoice = Field(
        -2, description="Teacher layer that is read; -2 is the last but one, best in 6 of 12 rows of tables 5 to 7."
    )
    student_layer: LayerChoice = Field("last", description="Student layer that is taught.")


@register_as_method(options=DirectMiniLMOptions, citation=cite(COMPARATIVE_STUDY, "section 3, equation 10"))
def direct_minilm(options: DirectMiniLMOptions, pairing: Pairing) -> list[Term]:
    """Queries, keys and values of one teacher layer, each head through a learned map.

    L = Σ_A Σ_a MSE(A^S_a W_a, A^T_a) (eq. 10), over A = Q, K, V and the relation heads a, each with its map W_a. Make
    one term for each A.
    """
    student = pairing.student
    teacher = pairing.teacher_shape
    heads = teacher.heads if options.relation_heads == "auto" else options.relation_heads
    check_relation_heads(pairing, heads, _STREAMS)
    student_layer = resolve_layer(options.student_layer, student, "student")
    teacher_layer = resolve_layer(options.teacher_layer, teacher, "teacher")
    terms = []
    for stream in _STREAMS:
        maps = LearnedMap(
            inputs=stream_width(student, stream),
            outputs=stream_width(teacher, stream),
            heads=heads,
        )
        term = Term(
            name=stream,
            objective="direct_mse",
            student=stream_keys(stream, layer=student_layer),
            teacher=stream_keys(stream, layer=teacher_layer),
            options={"heads": heads},
            learned_map=maps,
        )
        terms.append(term)
    return terms
