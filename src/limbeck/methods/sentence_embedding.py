"""Sentence embedding: teach the whole student the teacher's sentence vectors, and the tokens they are pooled from."""

from typing import Literal

from pydantic import Field

from limbeck.methods.composition import MethodOptions, Pairing, Term, Weight
from limbeck.methods.layer_mapping import resolve_layer
from limbeck.methods.registry import register_as_method
from limbeck.methods.terms import learned_map, weighted_terms
from limbeck.models.streams import StreamKey


class SentenceEmbeddingOptions(MethodOptions):
    """Options of the sentence-embedding composition."""

    pooled_weight: Weight = Field(1.0, description="Weight of 1 - cos of the pooled vectors.")
    hidden_weight: Weight = Field(
        1.0, description="Weight of the mean squared error between last hidden states, token by token."
    )
    layer_mapping: dict[int, int] = Field(
        {}, description="Student layer to teacher layer whose hidden states are taught too, for example {1: 1, 2: 3}."
    )
    layer_weight: Weight = Field(0.3, description="Weight of the error at each layer of layer_mapping.")
    sample_relation_weight: Weight = Field(
        0.0, description="Weight of the relations between the samples of a batch (MLKD-BERT, eq. 13-15)."
    )
    pooling: Literal["mean", "cls"] = Field("mean", description="How a sentence vector is made of tokens.")


@register_as_method(options=SentenceEmbeddingOptions)
def sentence_embedding(options: SentenceEmbeddingOptions, pairing: Pairing) -> list[Term]:
    """The teacher's sentence vectors and last hidden states, for embedding models.

    Make the terms on the last hidden states and the vectors pooled from them.

    Widths that differ get a learned map: one shared by the pooled vectors and the tokens would tie two objectives
    that need not agree, so each term has its own.
    """
    student, teacher = pairing.student, pairing.teacher
    widths = learned_map(pairing) if student.hidden != teacher.hidden else None
    pooled, hidden = (
        ((StreamKey(kind, student.layers),), (StreamKey(kind, teacher.layers),)) for kind in ("pooled", "hidden")
    )
    terms = [
        Term("pooled_cosine", "pooled_cosine", *pooled, options.pooled_weight, learned_map=widths),
        Term("hidden_mse", "hidden_mse", *hidden, options.hidden_weight, learned_map=widths),
    ]
    for own, other in sorted(options.layer_mapping.items()):
        taught = StreamKey("hidden", resolve_layer(own, student, "student"))
        read = StreamKey("hidden", resolve_layer(other, teacher, "teacher"))
        name = f"hidden_mse_{taught.layer}"
        terms.append(Term(name, "hidden_mse", (taught,), (read,), options.layer_weight, learned_map=widths))
    terms.append(Term("sample_relation", "sample_relation_kl", *pooled, options.sample_relation_weight))
    return weighted_terms(terms, "sentence_embedding")
