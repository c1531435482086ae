"""Reranker: the teacher's scores of a query's documents, for cross-encoders; layers below them if asked."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from limbeck.methods.checks import weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_mapping import resolve_mapping
from limbeck.methods.layer_terms import hidden_terms, layer_terms
from limbeck.methods.minilmv2 import relation_heads_for
from limbeck.methods.options import MappingChoice, MethodOptions, Temperature, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import Term, stream_keys

PAPER = paper(
    key="hofstaetter2020margin",
    title="Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation",
    authors="Sebastian Hofstätter, Sophia Althammer, Michael Schröder, Mete Sertkan, Allan Hanbury",
    year=2020,
    url="https://arxiv.org/abs/2010.02666",
    venue="arXiv preprint arXiv:2010.02666",
    place="section 3 (margin_mse)",
    kind="article",
)

_OBJECTIVES = {"score_mse": "soft_label_mse", "margin_mse": "margin_mse", "listwise_kl": "listwise_kl"}


class RerankerOptions(MethodOptions):
    """Options of the reranker composition."""

    loss: Literal["score_mse", "margin_mse", "listwise_kl"] = Field(
        "score_mse",
        description="What the student learns: the scores themselves, the differences between those of a query's "
        "documents, or their distribution.",
    )
    score_weight: Weight = Field(1.0, description="Weight of the loss on scores.")
    temperature: Temperature = Field(1.0, description="T of listwise_kl.")
    hidden_weight: Weight = Field(0.0, description="Weight of the hidden states of mapped layers.")
    relation_weight: Weight = Field(
        0.0, description="Weight of the relations between the values of mapped layers, as in MiniLMv2."
    )
    mapping: MappingChoice = Field(
        "uniform", description="Student layers to teacher layers, for hidden_weight and relation_weight."
    )

    @model_validator(mode="after")
    def _options_that_are_read(self) -> RerankerOptions:
        """Refuse options that have no effect beside the others, as a user who sets them expects one."""
        if self.temperature != 1 and self.loss != "listwise_kl":
            raise ValueError(
                f"'temperature' applies only to the loss 'listwise_kl', but 'loss' is {self.loss!r}: leave "
                "'temperature' out"
            )
        if self.mapping != "uniform" and not (self.hidden_weight or self.relation_weight):
            raise ValueError(
                "'mapping' has no effect while hidden_weight and relation_weight are both 0: leave 'mapping' out, "
                "or raise one of the two"
            )
        return self


@register_as_method(options=RerankerOptions, citation=PAPER, tasks=("ranking",))
def reranker(options: RerankerOptions, pairing: Pairing) -> list[Term]:
    """The teacher's scores of pairs of a query and a document, for cross-encoders; layers too if asked.

    Make the term on scores and, where they have a weight, those on hidden states and value relations of mapped layers.

    Scores are the raw outputs of the two heads, before any activation. The teacher makes them: no row needs a label.
    """
    student = pairing.student
    options_of_loss: dict[str, Any] = {}
    if options.loss == "listwise_kl":
        options_of_loss["temperature"] = options.temperature
    score = Term(
        name="score",
        objective=_OBJECTIVES[options.loss],
        student=stream_keys("logits", layer=student.layers),
        teacher=stream_keys("logits", layer=pairing.teacher.output_layer),
        weight=options.score_weight,
        options=options_of_loss,
        rows="sample",
    )
    terms = [score]
    # Only terms on layers need a mapping. A teacher that is a file of scores has no layers to map.
    if not options.hidden_weight and not options.relation_weight:
        return weighted_terms(terms, method="reranker")
    mapping = resolve_mapping(options.mapping, pairing)
    terms += hidden_terms(pairing, mapping, weight=options.hidden_weight)
    if options.relation_weight > 0:
        teacher = pairing.teacher_shape
        heads = relation_heads_for((student, teacher), ["value"], teacher=teacher)
        terms += layer_terms(
            mapping,
            name="relation",
            objective="relation_kl",
            streams=["value", "value"],
            weight=options.relation_weight,
            options={"heads": heads, "causal": teacher.causal},
        )
    return weighted_terms(terms, method="reranker")
