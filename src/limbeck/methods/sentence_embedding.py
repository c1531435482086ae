"""Sentence embedding: teach the whole student the teacher's sentence vectors, and the tokens they are pooled from."""

from typing import Literal

from pydantic import Field

from limbeck.methods.checks import weighted_terms
from limbeck.methods.layer_terms import sentence_hidden_terms
from limbeck.methods.options import MethodOptions, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term, stream_keys


class SentenceEmbeddingOptions(MethodOptions):
    """Options of the sentence-embedding composition."""

    pooled_weight: Weight = Field(1.0, description="Weight of 1 - cos of the pooled vectors.")
    hidden_weight: Weight = Field(
        1.0, description="Weight of the mean squared error between last hidden states, token by token."
    )
    layer_mapping: dict[int, int] = Field(
        {},
        description=(
            "Student layers to the teacher layers whose hidden states are taught too, for example {1: 1, 2: 3}."
        ),
    )
    layer_weight: Weight = Field(0.3, description="Weight of the error at each layer of layer_mapping.")
    sample_relation_weight: Weight = Field(
        0.0, description="Weight of the relations between the samples of a batch (MLKD-BERT, eq. 13-15)."
    )
    pooling: Literal["mean", "cls"] = Field("mean", description="How token vectors are pooled into a sentence vector.")


@register_as_method(options=SentenceEmbeddingOptions)
def sentence_embedding(options: SentenceEmbeddingOptions, pairing: Pairing) -> list[Term]:
    """The teacher's sentence vectors and last hidden states, for embedding models.

    Make the terms on the last hidden states and the vectors pooled from them.

    Widths that differ get a learned map: one shared by the pooled vectors and the tokens would tie two objectives
    that need not agree, so each term has its own.
    """
    student = pairing.student
    teacher = pairing.teacher
    learned: LearnedMap | None = None
    if student.hidden != teacher.width:
        learned = LearnedMap(inputs=student.hidden, outputs=teacher.width)
    student_pooled = stream_keys("pooled", layer=student.layers)
    teacher_pooled = stream_keys("pooled", layer=teacher.output_layer)
    pooled_cosine = Term(
        name="pooled_cosine",
        objective="pooled_cosine",
        student=student_pooled,
        teacher=teacher_pooled,
        weight=options.pooled_weight,
        learned_map=learned,
    )
    terms = [pooled_cosine]
    # These terms read the teacher's layers. A teacher that is a file of vectors has none.
    if options.hidden_weight or options.layer_mapping:
        terms += sentence_hidden_terms(
            pairing,
            options.layer_mapping,
            last_weight=options.hidden_weight,
            layer_weight=options.layer_weight,
        )
    sample_relation = Term(
        name="sample_relation",
        objective="sample_relation_kl",
        student=student_pooled,
        teacher=teacher_pooled,
        weight=options.sample_relation_weight,
    )
    terms.append(sample_relation)
    return weighted_terms(terms, method="sentence_embedding")
