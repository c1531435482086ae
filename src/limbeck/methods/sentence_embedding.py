"""Sentence embedding: teach the whole student the teacher's sentence vectors, and the tokens they are pooled from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from limbeck.errors import RecipeError
from limbeck.methods.composition import LearnedMap, Method, MethodOptions, Pairing, Term
from limbeck.methods.layer_mapping import resolve_layer
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey


class SentenceEmbeddingOptions(MethodOptions):
    """Options of the sentence-embedding composition."""

    pooled_weight: float = Field(default=1.0, ge=0, description="Weight of 1 - cos of the pooled vectors.")
    hidden_weight: float = Field(
        default=1.0,
        ge=0,
        description="Weight of the mean squared error between last hidden states, token by token.",
    )
    layer_mapping: dict[int, int] = Field(
        default={},
        description="Student layer to teacher layer whose hidden states are taught too, for example {1: 1, 2: 3}.",
    )
    layer_weight: float = Field(default=0.3, ge=0, description="Weight of the error at each layer of layer_mapping.")
    sample_relation_weight: float = Field(
        default=0.0,
        ge=0,
        description="Weight of the relations between the samples of a batch (MLKD-BERT, eq. 13-15).",
    )
    pooling: Literal["mean", "cls"] = Field(default="mean", description="How a sentence vector is made of tokens.")


def compose(options: SentenceEmbeddingOptions, pairing: Pairing) -> list[Term]:
    """Make the terms on the last hidden states and the vectors pooled from them.

    Widths that differ get a learned map: one shared by the pooled vectors and the tokens would tie two objectives
    that need not agree, so each term has its own.
    """
    student, teacher = pairing.student, pairing.teacher
    widths = LearnedMap(student.hidden, teacher.hidden) if student.hidden != teacher.hidden else None
    pooled = StreamKey("pooled", student.layers), StreamKey("pooled", teacher.layers)
    hidden = StreamKey("hidden", student.layers), StreamKey("hidden", teacher.layers)
    candidates = [
        Term(
            "pooled_cosine",
            "pooled_cosine",
            pooled[:1],
            pooled[1:],
            options.pooled_weight,
            learned_map=widths,
        ),
        Term("hidden_mse", "hidden_mse", hidden[:1], hidden[1:], options.hidden_weight, learned_map=widths),
        *(
            _hidden_term(student_layer, teacher_layer, options.layer_weight, student, teacher)
            for student_layer, teacher_layer in sorted(options.layer_mapping.items())
        ),
        Term("sample_relation", "sample_relation_kl", pooled[:1], pooled[1:], options.sample_relation_weight),
    ]
    terms = [term for term in candidates if term.weight > 0]
    if not terms:
        raise RecipeError("sentence_embedding has only weights of 0; give at least one of them a value above 0.")
    return terms


def _hidden_term(student_layer: int, teacher_layer: int, weight: float, student: Shape, teacher: Shape) -> Term:
    """The error between the hidden states of two layers, with a learned map of its own where widths differ."""
    widths = LearnedMap(student.hidden, teacher.hidden) if student.hidden != teacher.hidden else None
    student_key = StreamKey("hidden", resolve_layer(student_layer, student, "student"))
    teacher_key = StreamKey("hidden", resolve_layer(teacher_layer, teacher, "teacher"))
    return Term(f"hidden_mse_{student_key.layer}", "hidden_mse", (student_key,), (teacher_key,), weight, {}, widths)


SENTENCE_EMBEDDING: Method[SentenceEmbeddingOptions] = Method(
    name="sentence_embedding",
    summary="The teacher's sentence vectors and last hidden states, for embedding models.",
    options=SentenceEmbeddingOptions,
    compose=compose,
)
