"""BERT-PKD: the CLS vectors of intermediate layers, soft labels and hard labels."""

from pydantic import Field

from limbeck.errors import RecipeError
from limbeck.methods.checks import check_equal_widths, weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_terms import MappedOptions, mapped_terms
from limbeck.methods.options import MappingChoice
from limbeck.methods.pairing import LABELLED_TASKS, Pairing
from limbeck.methods.prediction_terms import hard_label_term, soft_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term

PAPER = paper(
    key="sun2019patient",
    title="Patient Knowledge Distillation for BERT Model Compression",
    authors="Siqi Sun, Yu Cheng, Zhe Gan, Jingjing Liu",
    year=2019,
    url="https://arxiv.org/abs/1908.09355",
    venue="Proceedings of EMNLP-IJCNLP 2019",
    place="section 3",
)


class BertPkdOptions(MappedOptions):
    """Options of BERT-PKD (arXiv 1908.09355, section 3)."""

    mapping: MappingChoice = Field(
        "uniform",
        description="Student layers to teacher layers, without the student's last: uniform is PKD-Skip, last PKD-Last; "
        "random as RAIL-KD, attention as ALP-KD.",
    )
    soft_label_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="alpha: share of the soft labels, where the hard ones have the rest (0.2, 0.5, 0.7 tried).",
    )
    patient_weight: float = Field(100.0, ge=0, description="beta: weight of the CLS vectors (10 to 1000 tried).")
    temperature: float = Field(10.0, gt=0, description="T of the soft labels (5, 10, 20 tried).")


@register_as_method(options=BertPkdOptions, citation=PAPER, tasks=(*LABELLED_TASKS, "text"))
def bert_pkd(options: BertPkdOptions, pairing: Pairing) -> list[Term]:
    """CLS vectors of intermediate layers, soft labels and hard labels; equal widths.

    L = (1 − α) L_CE + α L_DS + β L_PT (its eq. 6): L_CE of hard labels, L_DS of soft labels, and L_PT, the patient
    loss, between the normalised CLS vectors of mapped layers. α is `soft_label_share`, β `patient_weight`.

    The paper sums the patient loss over the samples; here it is their mean, as the other two terms are.
    """
    # The student's last layer has no patient term, since the predictions that are made from it teach it.
    terms = mapped_terms(
        options,
        pairing,
        name="patient",
        objective="patient_mse",
        stream="cls",
        weight=options.patient_weight,
        intermediate=True,
    )
    if options.patient_weight > 0 and not terms:
        raise RecipeError(
            "bert_pkd teaches the CLS vectors of the layers below the student's last, but mapping "
            f"{options.mapping} with {pairing.student.layers} student layers has no such layer; choose another "
            "mapping, or set patient_weight: 0."
        )
    if options.patient_weight > 0:
        check_equal_widths(pairing, method="bert_pkd", compared="CLS vectors", otherwise="set patient_weight: 0")
    terms.append(soft_label_term(pairing, weight=options.soft_label_share, temperature=options.temperature))
    hard_label = hard_label_term(
        pairing, weight=1 - options.soft_label_share, is_default=options.is_default("soft_label_share")
    )
    terms.append(hard_label)
    return weighted_terms(terms, method="bert_pkd")
