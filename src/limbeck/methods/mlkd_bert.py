"""MLKD-BERT: token relations and features first, then relations between samples and soft labels.

The method trains in two *stages*, each with terms and options of its own. *Relations* are the products between the
vectors of a text's tokens, per *split*: the width of the vectors is divided into as many groups as there are splits. By
default a split is an attention head of the student. *Features* are the vectors themselves, through a learned map.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from limbeck.errors import RecipeError
from limbeck.methods.checks import weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import LayerMapping, resolve_mapping, stream_width
from limbeck.methods.layer_terms import layer_terms, learned_map
from limbeck.methods.options import HeadCount, MappingChoice, MethodOptions, Temperature, Weight
from limbeck.methods.pairing import LABELLED_TASKS, Pairing
from limbeck.methods.prediction_terms import soft_label_term
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term, stream_keys
from limbeck.methods.transforms import HeadGroups

PAPER = paper(
    key="zhang2024mlkdbert",
    title="MLKD-BERT: Multi-level Knowledge Distillation for Pre-trained Language Models",
    authors="Ying Zhang, Ziheng Yang, Shufan Ji",
    year=2024,
    url="https://arxiv.org/abs/2407.02775",
    venue="arXiv preprint arXiv:2407.02775",
    place="section 3",
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
    """Options that came after the first release; see `MethodOptions.added`."""

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
        None, ge=0, description="Stage 2: weight of eq. 16; default: 1 for labelled classification, else 0."
    )
    contrastive_temperature: Temperature = Field(0.07, description="Stage 2: rho (table 9).")
    soft_label_weight: Weight = Field(1.0, description="Stage 2: weight of eq. 18.")
    temperature: Temperature = Field(1.0, description="Stage 2: tau of the soft labels (table 9).")

    @property
    def unread_options(self) -> frozenset[str]:
        """Options that only the other stage reads."""
        if self.joint:
            return frozenset()
        return _OPTIONS_OF_STAGE[self._other_stage]

    @property
    def _other_stage(self) -> int:
        """The number of the stage that these options are not for."""
        return 2 if self.stage == 1 else 1

    @model_validator(mode="after")
    def _options_of_this_stage(self) -> MlkdBertOptions:
        """Refuse options of the other stage."""
        # `joint` is stage 1 with the terms of stage 2 added.
        if self.joint and self.stage == 2:
            raise ValueError(
                "'joint' trains both stages as one, so 'stage' has no meaning beside it: leave 'stage' out"
            )
        for name in type(self).model_fields:
            if name in self.unread_options and self._is_changed(name):
                raise ValueError(
                    f"'{name}' applies only to stage {self._other_stage}, but this is stage {self.stage}: leave "
                    f"'{name}' out"
                )
        return self

    @model_validator(mode="after")
    def _options_that_are_read(self) -> MlkdBertOptions:
        """Refuse options that have no effect beside the others, as a user who sets them expects one."""
        # A seed and a way of drawing are for heads that are drawn at random.
        self._refuse_unless_random("mha_mapping", "mha_seed", "mha_draw")
        # Only relations are computed per split. Features are compared over the whole width, so no heads are merged.
        if self.mha_loss == "features" and self.mha_mapping != "concat-split":
            raise ValueError(
                f"mha_mapping {self.mha_mapping!r} merges heads, which only relations need, but mha_loss is "
                "'features': leave mha_mapping or mha_loss out"
            )
        # Only features have learned maps, so without any there is none to share.
        if self.one_map and "features" not in (self.mha_loss, self.ffn_loss):
            raise ValueError(
                "one_map shares the learned maps of features, but mha_loss and ffn_loss are both 'relation', "
                "which has no maps: leave one_map out"
            )
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
    terms: list[Term] = []
    # With `joint` the stage is 1.
    if options.stage == 1:
        terms += _stage_1(options, pairing)
    if options.stage == 2 or options.joint:
        terms += _stage_2(options, pairing)
    return weighted_terms(terms, method="mlkd_bert")


def _stage_1(options: MlkdBertOptions, pairing: Pairing) -> list[Term]:
    """Make the terms of the embeddings (eq. 1), the attention outputs (eq. 8) and the hidden states (eq. 11)."""
    mapping = resolve_mapping(options.mapping, pairing)
    # Tokens are related over the whole width of the embeddings, as one head.
    embedding_keys = stream_keys("embedding", "embedding", layer=0)
    embedding = Term(
        name="embedding",
        objective="relation_kl",
        student=embedding_keys,
        teacher=embedding_keys,
        weight=options.embedding_weight,
        options={"heads": 1},
    )
    attention = _output_terms(
        options, pairing, mapping, "context", name="attention", loss=options.mha_loss, weight=options.attention_weight
    )
    hidden = _output_terms(
        options, pairing, mapping, "hidden", name="hidden", loss=options.ffn_loss, weight=options.hidden_weight
    )
    # concat-split is the plain division of the width, which needs no merging.
    if options.mha_loss == "relation" and options.mha_mapping != "concat-split":
        attention = _with_merged_heads(attention, options, pairing)
    return [embedding, *attention, *hidden]


def _output_terms(
    options: MlkdBertOptions,
    pairing: Pairing,
    mapping: LayerMapping,
    stream: str,
    *,
    name: str,
    loss: Literal["relation", "features"],
    weight: float,
) -> list[Term]:
    """Make the terms of one of a block's two outputs: relations of its tokens (eq. 8), or its features (eq. 11).

    Args:
        options: The method's options.
        pairing: The two models.
        mapping: Student layer to teacher layers.
        stream: The output: `"context"`, that of the attention, or `"hidden"`.
        name: First part of the terms' names.
        loss: `"relation"` for eq. 8, `"features"` for eq. 11.
        weight: Coefficient of each term.
    """
    if loss == "features":
        learned = learned_map(pairing, stream, shared=options.one_map)
        return layer_terms(
            mapping, name=name, objective="hidden_mse", streams=[stream], weight=weight, learned_map=learned
        )
    # Terms of weight 0 are dropped in the end. They are not even made, since their splits need not fit the widths.
    if weight == 0:
        return []
    splits = _splits(options, pairing)
    _check_splits(pairing, stream, splits)
    return layer_terms(
        mapping,
        name=name,
        objective="relation_kl",
        streams=[stream, stream],
        weight=weight,
        options={"heads": splits},
    )


def _splits(options: MlkdBertOptions, pairing: Pairing) -> int:
    """Return the number of groups that outputs are split into."""
    return pairing.student.heads if options.mha_splits == "auto" else options.mha_splits


def _check_splits(pairing: Pairing, stream: str, splits: int) -> None:
    """Refuse splits that do not divide the streams of both models."""
    output = "attention output" if stream == "context" else "hidden state"
    for owner, shape in (("student", pairing.student), ("teacher", pairing.teacher_shape)):
        width = stream_width(shape, stream)
        if splits < 1 or width % splits:
            raise RecipeError(
                f"mha_splits {splits} does not divide the {owner}'s {output} of width {width}; use a divisor of both "
                "widths, such as the student's number of heads."
            )


def _with_merged_heads(terms: list[Term], options: MlkdBertOptions, pairing: Pairing) -> list[Term]:
    """Let the relation terms merge the teacher's attention heads, so that there is one for each split.

    Neighbouring heads of the teacher form a group for each split. The group is averaged, or one head of it is drawn:
    the same in every layer (`mha_draw: once`) or another one in each.

    Args:
        terms: The relation terms, one for each pair of layers.
        options: The method's options.
        pairing: The two models.

    Raises:
        RecipeError: for splits that do not divide the teacher's heads.
    """
    if not terms:
        return []
    heads = pairing.teacher_shape.heads
    splits = _splits(options, pairing)
    if heads % splits:
        raise RecipeError(
            f"mha_mapping '{options.mha_mapping}' gives every split the same number of the teacher's {heads} "
            f"heads, but mha_splits {splits} does not divide {heads}; change mha_splits, or set mha_mapping: "
            "concat-split."
        )
    if options.mha_mapping == "average":
        averaged = HeadGroups(heads, splits)
        return [replace(term, teacher_heads=averaged) for term in terms]
    random_numbers = random.Random(options.mha_seed)
    drawn = _draw_heads(heads, splits, random_numbers)
    merged_terms = []
    for number, term in enumerate(terms):
        if number > 0 and options.mha_draw == "layer":
            drawn = _draw_heads(heads, splits, random_numbers)
        merged_terms.append(replace(term, teacher_heads=drawn))
    return merged_terms


def _draw_heads(heads: int, splits: int, random_numbers: random.Random) -> HeadGroups:
    """Draw the head that is kept of each group of neighbouring heads.

    Args:
        heads: The teacher's attention heads, a multiple of `splits`.
        splits: Number of groups.
        random_numbers: Source of the draw, which moves on.
    """
    heads_of_group = heads // splits
    chosen = tuple(random_numbers.randrange(heads_of_group) for _ in range(splits))
    return HeadGroups(heads, splits, chosen)


def _stage_2(options: MlkdBertOptions, pairing: Pairing) -> list[Term]:
    """Make the terms of relations between samples (eq. 13), contrast between classes (eq. 16) and soft labels (eq. 18).

    Rows of the contrastive term get unit length first, which rho = 0.07 presumes and the paper does not print.

    Raises:
        RecipeError: for a weight of a term that the task does not have.
    """
    relation_weight = options.sample_relation_weight
    contrastive_weight = options.sample_contrastive_weight
    if pairing.of_tokens and (relation_weight or contrastive_weight):
        raise RecipeError(
            f"The sample terms of mlkd_bert relate one vector per sample, but {pairing.task} predicts every token "
            "(the paper leaves these terms out there too, section 4.3); set sample_relation_weight and "
            "sample_contrastive_weight to 0."
        )
    if pairing.label != "class" and contrastive_weight:
        raise RecipeError(
            f"sample_contrastive_weight needs one class per sample, but {pairing.task} has none; set "
            "sample_contrastive_weight to 0."
        )
    # None is the default: the weight 1, or 0 where the task cannot have the term.
    if relation_weight is None:
        relation_weight = 0.0 if pairing.of_tokens else 1.0
    if contrastive_weight is None:
        has_one_class = pairing.label == "class" and pairing.labelled
        contrastive_weight = 1.0 if has_one_class else 0.0

    student = pairing.student
    teacher = pairing.teacher_shape
    student_cls = stream_keys("cls", layer=student.layers)
    teacher_cls = stream_keys("cls", layer=teacher.layers)
    relation = Term(
        name="sample_relation",
        objective="sample_relation_kl",
        student=student_cls,
        teacher=teacher_cls,
        weight=relation_weight,
    )
    contrast = Term(
        name="sample_contrastive",
        objective="sample_contrastive",
        student=student_cls,
        teacher=teacher_cls,
        weight=contrastive_weight,
        options={"temperature": options.contrastive_temperature},
        learned_map=LearnedMap(inputs=student.hidden, outputs=teacher.hidden),
        normalise=True,
    )
    soft_label = soft_label_term(pairing, weight=options.soft_label_weight, temperature=options.temperature)
    return [relation, contrast, soft_label]
