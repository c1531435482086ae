"""MLKD-BERT: token relations and features first, then relations between samples and soft labels."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from limbeck.errors import RecipeError
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping, stream_width
from limbeck.methods.options import HeadCount, MappingChoice, MethodOptions, Temperature, Weight
from limbeck.methods.pairing import LABELLED_TASKS, Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term
from limbeck.methods.terms import layer_terms, learned_map, soft_label_term, weighted_terms
from limbeck.methods.transforms import HeadGroups
from limbeck.models.streams import StreamKey

PAPER = paper(
    "zhang2024mlkdbert",
    "MLKD-BERT: Multi-level Knowledge Distillation for Pre-trained Language Models",
    "Ying Zhang, Ziheng Yang, Shufan Ji",
    2024,
    "https://arxiv.org/abs/2407.02775",
    "arXiv preprint arXiv:2407.02775",
    "section 3",
    kind="article",
)


_OPTIONS_OF_STAGE = {
    1: frozenset({
        "mapping", "mha_splits", "mha_mapping", "mha_seed", "mha_draw", "mha_loss", "ffn_loss", "one_map",
        "embedding_weight", "attention_weight", "hidden_weight",
    }),
    2: frozenset({
        "sample_relation_weight", "sample_contrastive_weight", "contrastive_temperature", "soft_label_weight",
        "temperature",
    }),
}  # fmt: skip
"""Options that only one of the two stages reads."""


class MlkdBertOptions(MethodOptions):
    """Options of MLKD-BERT (arXiv 2407.02775, section 3)."""

    added = frozenset({"joint", "mha_draw", "mha_loss", "ffn_loss", "one_map"})

    stage: Literal[1, 2] = Field(1, description="1: embedding and layers (eq. 12); 2: prediction (eq. 19).")
    joint: bool = Field(False, description="Both stages in one: the sum of all six losses (section 4.8, table 8).")
    mapping: MappingChoice = Field("uniform", description="Stage 1: student layers to teacher layers.")
    mha_splits: HeadCount = Field(
        "auto", description="Stage 1: groups that the attention output is split into; auto: the student's heads."
    )
    mha_mapping: Literal["concat-split", "average", "random"] = Field(
        "concat-split", description="Stage 1: how several teacher heads serve one split (section 4.5, table 5)."
    )
    mha_seed: int = Field(0, ge=0, description="Stage 1: seed of the heads that random mapping picks.")
    mha_draw: Literal["once", "layer"] = Field(
        "once",
        description="Stage 1: whether random mapping picks the same heads in every layer, or different ones in each.",
    )
    mha_loss: Literal["relation", "features"] = Field(
        "relation", description="Stage 1: loss on attention outputs, that of eq. 8 or of eq. 11 (table 6)."
    )
    ffn_loss: Literal["relation", "features"] = Field(
        "features", description="Stage 1: loss on hidden states, that of eq. 11 or of eq. 8 (table 6)."
    )
    one_map: bool = Field(
        False, description="Stage 1: one W_h for all pairs of layers, as eq. 11 is printed; else one per pair."
    )
    embedding_weight: Weight = Field(1.0, description="Stage 1: weight of eq. 1.")
    attention_weight: Weight = Field(1.0, description="Stage 1: weight of eq. 8.")
    hidden_weight: Weight = Field(1.0, description="Stage 1: weight of eq. 11.")
    sample_relation_weight: float | None = Field(
        None, ge=0, description="Stage 2: weight of eq. 13; default: 1, and 0 where tokens are predicted."
    )
    sample_contrastive_weight: float | None = Field(
        None, ge=0, description="Stage 2: weight of eq. 16; default: 1 for classification, else 0."
    )
    contrastive_temperature: Temperature = Field(0.07, description="Stage 2: rho (table 9).")
    soft_label_weight: Weight = Field(1.0, description="Stage 2: weight of eq. 18.")
    temperature: Temperature = Field(1.0, description="Stage 2: tau of the soft labels (table 9).")

    @property
    def unread_options(self) -> frozenset[str]:
        """Options of the other stage."""
        if self.joint:
            return frozenset()
        return _OPTIONS_OF_STAGE[3 - self.stage]

    @model_validator(mode="after")
    def _options_of_this_stage(self) -> MlkdBertOptions:
        if self.joint and self.stage == 2:
            raise ValueError("joint runs both stages in one: leave stage out")
        for name in type(self).model_fields:
            is_default = getattr(self, name) == type(self).model_fields[name].default
            if name in self.unread_options and not is_default:
                raise ValueError(
                    f"{name} belongs to stage {3 - self.stage}, but this is stage {self.stage}: leave it out"
                )
        return self

    @model_validator(mode="after")
    def _options_that_are_read(self) -> MlkdBertOptions:
        self._refuse_unless_random("mha_mapping", "mha_seed", "mha_draw")
        if self.mha_loss == "features" and self.mha_mapping != "concat-split":
            raise ValueError(
                f"mha_mapping {self.mha_mapping!r} merges heads for relations, but mha_loss is 'features': leave "
                "one of them out"
            )
        if self.one_map and "features" not in (self.mha_loss, self.ffn_loss):
            raise ValueError("one_map is for features, but mha_loss and ffn_loss are 'relation': leave it out")
        return self


@register_as_method(
    options=MlkdBertOptions,
    citation=PAPER,
    tasks=(*LABELLED_TASKS, "text"),
    stages=({"name": "mlkd_bert", "stage": 1}, {"name": "mlkd_bert", "stage": 2}),
)
def mlkd_bert(options: MlkdBertOptions, pairing: Pairing) -> list[Term]:
    """Two stages: token relations and features of mapped layers, then sample relations and soft labels.

    The terms are those of one of the two stages, or of both with `joint`.
    """
    terms = _layers(options, pairing) if options.stage == 1 else []
    if options.stage == 2 or options.joint:
        terms += _prediction(options, pairing)
    return weighted_terms(terms, "mlkd_bert")


def _layers(options: MlkdBertOptions, pairing: Pairing) -> list[Term]:
    """Stage 1: relations of the embeddings (one head), of the attention outputs, and features (eq. 1 to 12)."""
    mapping = resolve_mapping(options.mapping, pairing)
    embedding = (StreamKey("embedding", 0),) * 2
    terms = [Term("embedding", "relation_kl", embedding, embedding, options.embedding_weight, {"heads": 1})]
    splits = pairing.student.heads if options.mha_splits == "auto" else options.mha_splits
    draw = random.Random(options.mha_seed)
    outputs: tuple[tuple[str, str, Literal["relation", "features"], float], ...] = (
        ("attention", "context", options.mha_loss, options.attention_weight),
        ("hidden", "hidden", options.ffn_loss, options.hidden_weight),
    )
    for name, kind, loss, weight in outputs:
        if loss == "features":
            learned = learned_map(pairing, kind, shared=options.one_map)
            terms += layer_terms(name, "hidden_mse", [kind], mapping, weight, learned_map=learned)
        elif weight > 0:
            _check_splits(pairing, kind, splits)
            relations = layer_terms(name, "relation_kl", [kind] * 2, mapping, weight, options={"heads": splits})
            if kind == "context":
                relations = _with_heads_mapped(options, pairing, splits, relations, draw)
            terms += relations
    return terms


def _with_heads_mapped(
    options: MlkdBertOptions, pairing: Pairing, splits: int, terms: list[Term], draw: random.Random
) -> list[Term]:
    """Merge the teacher's heads in relations of attention outputs, where the mapping is not concat-split."""
    if options.mha_draw == "once":
        shared = _head_groups(options, pairing, splits, draw)
        return [replace(term, teacher_heads=shared) for term in terms]
    return [replace(term, teacher_heads=_head_groups(options, pairing, splits, draw)) for term in terms]


def _check_splits(pairing: Pairing, kind: str, splits: int) -> None:
    """Refuse splits that do not divide the streams of both models."""
    for owner, shape in (("student", pairing.student), ("teacher", pairing.teacher_shape)):
        width = stream_width(shape, kind)
        if splits < 1 or width % splits:
            output = "attention output" if kind == "context" else "hidden state"
            raise RecipeError(
                f"mha_splits {splits} does not divide the {owner}'s {output} of width {width}; use a divisor of both "
                "widths, such as the student's number of heads."
            )


def _head_groups(options: MlkdBertOptions, pairing: Pairing, splits: int, draw: random.Random) -> HeadGroups | None:
    """Return how the teacher's heads are merged to splits; None for concat-split."""
    if options.mha_mapping == "concat-split":
        return None
    heads = pairing.teacher_shape.heads
    if heads % splits:
        raise RecipeError(
            f"mha_mapping '{options.mha_mapping}' gives every split the same number of the teacher's {heads} "
            f"heads, but mha_splits {splits} does not divide that; change mha_splits or use concat-split."
        )
    if options.mha_mapping == "average":
        return HeadGroups(heads, splits)
    return HeadGroups(heads, splits, tuple(draw.randrange(heads // splits) for _ in range(splits)))


def _prediction(options: MlkdBertOptions, pairing: Pairing) -> list[Term]:
    """Stage 2: relations between samples, contrast between classes, soft labels (eq. 13 to 19).

    Rows of the contrastive term get unit length first, which rho = 0.07 presumes and the paper does not print.
    """
    tokens = pairing.of_tokens
    relation, contrast = options.sample_relation_weight, options.sample_contrastive_weight
    if tokens and (relation or contrast):
        raise RecipeError(
            f"The sample terms of mlkd_bert relate one vector per sample, but {pairing.task} predicts tokens (section "
            "4.3 leaves them out there too); set sample_relation_weight and sample_contrastive_weight to 0."
        )
    if pairing.label != "class" and contrast:
        raise RecipeError(
            f"sample_contrastive_weight needs one class per sample, but {pairing.task} has none; set it to 0."
        )
    student, teacher = pairing.student, pairing.teacher_shape
    cls = (StreamKey("cls", student.layers),), (StreamKey("cls", teacher.layers),)
    relation = (0.0 if tokens else 1.0) if relation is None else relation
    contrast = float(pairing.label == "class") if contrast is None else contrast
    return [
        Term("sample_relation", "sample_relation_kl", *cls, relation),
        Term(
            "sample_contrastive",
            "sample_contrastive",
            *cls,
            contrast,
            {"temperature": options.contrastive_temperature},
            LearnedMap(student.hidden, teacher.hidden),
            normalise=True,
        ),
        soft_label_term(pairing, options.soft_label_weight, options.temperature),
    ]
