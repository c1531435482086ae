"""DirectMiniLM: queries, keys and values themselves, head by head through learned maps."""

from pydantic import Field

from limbeck.methods.citation import COMPARATIVE_STUDY, cite
from limbeck.methods.layer_mapping import resolve_layer, stream_width
from limbeck.methods.options import HeadCount, LayerChoice, MethodOptions
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term
from limbeck.methods.terms import check_relation_heads
from limbeck.models.streams import StreamKey

_PARTS = ("query", "key", "value")


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

    Make one `direct_mse` each for queries, keys and values (eq. 10).
    """
    student, teacher = pairing.student, pairing.teacher_shape
    heads = teacher.heads if options.relation_heads == "auto" else options.relation_heads
    check_relation_heads(pairing, heads, _PARTS)
    taught = resolve_layer(options.student_layer, student, "student")
    read = resolve_layer(options.teacher_layer, teacher, "teacher")
    terms = []
    for part in _PARTS:
        keys = (StreamKey(part, taught),), (StreamKey(part, read),)
        maps = LearnedMap(stream_width(student, part), stream_width(teacher, part), heads)
        terms.append(Term(part, "direct_mse", *keys, options={"heads": heads}, learned_map=maps))
    return terms
