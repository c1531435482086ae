"""BERT-PKD: the CLS vectors of intermediate layers, soft labels and hard labels."""

from __future__ import annotations

from pydantic import Field

from limbeck.errors import RecipeError
from limbeck.methods.composition import BERT_PKD as PAPER
from limbeck.methods.composition import LABELLED_TASKS, MappingChoice, Method, MethodOptions, Pairing, Term, cite
from limbeck.methods.layer_mapping import resolve_mapping, without_last
from limbeck.methods.terms import hard_label_term, kept, soft_label_term
from limbeck.models.streams import StreamKey


class BertPkdOptions(MethodOptions):
    """Options of BERT-PKD (arXiv 1908.09355, section 3)."""

    mapping: MappingChoice = Field(
        default="uniform",
        description="Student layers to teacher layers, without the student's last: uniform is PKD-Skip, last PKD-Last.",
    )
    soft_label_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="alpha: share of the soft labels beside the hard ones (0.2, 0.5, 0.7 tried).",
    )
    patient_weight: float = Field(
        default=100.0, ge=0, description="beta: weight of the CLS vectors (10 to 1000 tried)."
    )
    temperature: float = Field(default=10.0, gt=0, description="T of the soft labels (5, 10, 20 tried).")


def compose(options: BertPkdOptions, pairing: Pairing) -> list[Term]:
    """Make (1 - alpha) hard labels + alpha soft labels + beta patient loss (its eq. 6).

    The paper sums the patient loss over the samples; here it is their mean, as the other two terms are.
    """
    student, teacher = pairing.student, pairing.teacher
    mapping = without_last(resolve_mapping(options.mapping, pairing), student.layers)
    if options.patient_weight > 0 and not mapping:
        raise RecipeError(
            f"bert_pkd teaches the CLS vectors of the layers below the student's last, and mapping {options.mapping} "
            f"with {student.layers} student layers has none; choose another mapping or set patient_weight: 0."
        )
    if options.patient_weight > 0 and student.hidden != teacher.hidden:
        raise RecipeError(
            f"bert_pkd compares CLS vectors without a map, so the student has to be {teacher.hidden} wide as the "
            f"teacher, not {student.hidden}; change student.shape or set patient_weight: 0."
        )
    terms = [
        Term(
            f"patient_{layer}_{target}",
            "patient_mse",
            (StreamKey("cls", layer),),
            (StreamKey("cls", target),),
            options.patient_weight,
        )
        for layer, targets in mapping.items()
        for target in targets
    ]
    terms.append(soft_label_term(pairing, options.soft_label_share, options.temperature))
    terms.append(hard_label_term(pairing, 1 - options.soft_label_share))
    return kept(terms, "bert_pkd")


BERT_PKD: Method[BertPkdOptions] = Method(
    name="bert_pkd",
    summary="CLS vectors of intermediate layers, soft labels and hard labels; equal widths.",
    options=BertPkdOptions,
    compose=compose,
    citation=cite(PAPER, "section 3"),
    tasks=(*LABELLED_TASKS, "text"),
)
