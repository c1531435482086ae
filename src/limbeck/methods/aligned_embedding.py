"""Aligned embedding: a student whose sentence vectors lie in the teacher's space, by a map that it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from limbeck.errors import ModelError, RecipeError
from limbeck.methods.citation import paper
from limbeck.methods.options import MethodOptions, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term
from limbeck.methods.terms import sentence_hidden_terms, weighted_terms
from limbeck.models.sentences import check_pooling, finished_pooling
from limbeck.models.streams import StreamKey

LEAF = paper(
    "vujanic2025leaf",
    "LEAF: Knowledge Distillation of Text Embedding Models with Teacher-Aligned Representations",
    "Robin Vujanic, Thomas Rueckstiess",
    2025,
    "https://arxiv.org/abs/2509.12539",
    "arXiv preprint arXiv:2509.12539",
    "its loss on finished vectors",
    kind="article",
)


def _check_pooling(value: str | None) -> str | None:
    try:
        if value is not None:
            check_pooling(value)
    except ModelError as error:
        raise ValueError(str(error)) from None
    return value


class AlignedEmbeddingOptions(MethodOptions):
    """Options of aligned embeddings (LEAF, arXiv 2509.12539)."""

    distance: Literal["l2", "l2_squared", "cosine"] = Field(
        "l2",
        description="Between the finished vectors: the norm of their difference (LEAF), its square, or 1 - cos.",
    )
    pooling: Annotated[str | None, AfterValidator(_check_pooling)] = Field(
        None, description="How the student pools its tokens; null: as its teacher does."
    )
    map: Literal["auto", "always", "none"] = Field(
        "auto",
        description=(
            "The learned map behind the student's pooling, which stays part of the student: where widths differ, "
            "always, or never. Without it the student takes over the teacher's modules."
        ),
    )
    bias: bool = Field(False, description="Whether that map has a bias.")
    truncate: list[Annotated[int, Field(ge=1)]] = Field(
        [], description="Widths that the vectors may also be cut to, for example [256, 128]: each adds the same loss."
    )
    hidden_weight: Weight = Field(
        0.0, description="Weight of the mean squared error between last hidden states, token by token."
    )
    layer_mapping: dict[int, int] = Field(
        {},
        description=(
            "Student layers to the teacher layers whose hidden states are taught too, for example {1: 1, 2: 3}."
        ),
    )
    layer_weight: Weight = Field(0.3, description="Weight of the error at each layer of layer_mapping.")


@register_as_method(options=AlignedEmbeddingOptions, citation=LEAF)
def aligned_embedding(options: AlignedEmbeddingOptions, pairing: Pairing) -> list[Term]:
    """The teacher's finished sentence vectors, by a map that the student keeps: it serves beside its teacher.

    Make the terms on the finished vectors, whole and cut to prefixes, and those on hidden states below.

    Vectors get length one where the teacher's have it, and where no file of it says; else the student learns length
    too.
    """
    student_pooling = finished_pooling(pairing.sentence, options.pooling)
    teacher_pooling = finished_pooling(pairing.sentence)
    student_width = student_pooling.pooled_width(pairing.student.hidden)
    teacher_width = teacher_pooling.pooled_width(pairing.teacher.width)
    width = teacher_pooling.width(pairing.teacher.width)
    if options.map == "none" and student_width != teacher_width:
        raise RecipeError(
            f"map is 'none', but the student pools vectors of {student_width} numbers where the teacher pools "
            f"{teacher_width}; leave map out, or give a student as wide as the teacher."
        )
    keeps_map = options.map == "always" or student_width != teacher_width
    if options.bias and not keeps_map:
        raise RecipeError(
            "bias is for the learned map, but at equal widths there is none; give map: always, or leave bias out."
        )
    if any(prefix >= width for prefix in options.truncate) or len(set(options.truncate)) < len(options.truncate):
        raise RecipeError(
            f"truncate is {options.truncate}, but the teacher's vectors have {width} numbers; give widths below "
            "that, each once."
        )
    kept_map = None
    if keeps_map:
        kept_map = LearnedMap(student_width, width, name="vector", kept=True, bias=options.bias)
    keys = (StreamKey("vector", pairing.student.layers),), (StreamKey("vector", pairing.teacher.output_layer),)
    objective = "pooled_cosine" if options.distance == "cosine" else "pooled_distance"
    squared = {"squared": True} if options.distance == "l2_squared" else {}
    normalise = teacher_pooling.normalize
    whole = Term("vector", objective, *keys, options=squared, learned_map=kept_map, normalise=normalise)
    terms = [whole]
    for prefix in options.truncate:
        cut = {**squared, "prefix": prefix}
        terms.append(replace(whole, name=f"vector_{prefix}", options=cut))
    if options.hidden_weight or options.layer_mapping:
        terms += sentence_hidden_terms(pairing, options.hidden_weight, options.layer_mapping, options.layer_weight)
    return weighted_terms(terms, "aligned_embedding")
