"""ELM: TinyBERT's layer terms under a searched mapping, in which layers may learn from none."""

from pydantic import Field

from limbeck.methods.checks import weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.layer_terms import attention_score_terms, hidden_terms
from limbeck.methods.options import MappingChoice, MethodOptions, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term

SEARCHED: dict[tuple[int, int], MappingChoice] = {(4, 12): [0, 0, 5, 10], (6, 12): [0, 5, 0, 0, 0, 10]}
"""Depths of student and teacher to the mapping that the paper's search found (its table 2)."""

PAPER = paper(
    key="jiao2021elm",
    title="Improving Task-Agnostic BERT Distillation with Layer Mapping Search",
    authors="Xiaoqi Jiao, Huating Chang, Yichun Yin, Lifeng Shang, Xin Jiang, Xiao Chen, Linlin Li, Fang Wang, Qun Liu",
    year=2021,
    url="https://arxiv.org/abs/2012.06153",
    venue="Neurocomputing",
    place="sections 3.3 and 4, equations 6 and 7",
    kind="article",
)


class ElmOptions(MethodOptions):
    """Options of ELM (arXiv 2012.06153, sections 3.3 and 4)."""

    added = frozenset({"one_map"})
    """Options that came after the first release; see `MethodOptions.added`."""

    mapping: MappingChoice = Field(
        "searched",
        description="Student layers to teacher layers, such as [0, 0, 5, 10]; searched: what the paper found for 4 and "
        "6 layers under 12 (table 2), else uniform.",
    )
    hidden_weight: Weight = Field(1.0, description="Weight of the hidden states (second part of eq. 7).")
    attention_weight: Weight = Field(
        1.0, description="Weight of the attention scores (first part of eq. 7); needs equal heads."
    )
    one_map: bool = Field(False, description="One W_h for all pairs of layers, as eq. 7 is printed; else one per pair.")


@register_as_method(options=ElmOptions, citation=PAPER)
def elm(options: ElmOptions, pairing: Pairing) -> list[Term]:
    """Hidden states and attention scores under a searched layer mapping; as many heads as the teacher.

    For every mapped layer (eq. 6) make the two parts of eq. 7: the squared error of attention scores and that of
    hidden states, H^S W_h beside H^T.

    Eq. 7 prints squared norms; TinyBERT, whose terms these are, takes means, and so does this: a norm would grow with
    the length of the text.
    """
    choice = options.mapping
    if choice == "searched":
        depths = (pairing.student.layers, pairing.teacher_shape.layers)
        choice = SEARCHED.get(depths, "uniform")
    mapping = resolve_mapping(choice, pairing, more_names=["searched"])
    terms = hidden_terms(pairing, mapping, weight=options.hidden_weight, one_map=options.one_map)
    if options.attention_weight > 0:
        terms += attention_score_terms(pairing, mapping, weight=options.attention_weight, method="elm")
    return weighted_terms(terms, method="elm")
