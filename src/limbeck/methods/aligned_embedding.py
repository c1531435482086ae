"""Aligned embedding: a student whose sentence vectors lie in the teacher's space, by a map that it keeps.

*Finished* vectors are those that a model is used by: its tokens pooled and, for the teacher, passed through the modules
of its folder. Since both models' vectors lie in one space, documents may be embedded by one and queries by the other.
A *prefix* is the first numbers of a vector, which may be used as a shorter vector.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from limbeck.errors import ModelError, RecipeError
from limbeck.methods.checks import weighted_terms
from limbeck.methods.citation import paper
from limbeck.methods.layer_terms import sentence_hidden_terms
from limbeck.methods.options import MethodOptions, Weight
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import register_as_method
from limbeck.methods.term import LearnedMap, Term, stream_keys
from limbeck.models.sentences import check_pooling, finished_pooling

LEAF = paper(
    key="vujanic2025leaf",
    title="LEAF: Knowledge Distillation of Text Embedding Models with Teacher-Aligned Representations",
    authors="Robin Vujanic, Thomas Rueckstiess",
    year=2025,
    url="https://arxiv.org/abs/2509.12539",
    venue="arXiv preprint arXiv:2509.12539",
    place="its loss on finished vectors",
    kind="article",
)


def _check_pooling(pooling: str | None) -> str | None:
    """Refuse an unknown pooling, by an error that pydantic expects."""
    if pooling is not None:
        try:
            check_pooling(pooling)
        except ModelError as error:
            raise ValueError(str(error)) from None
    return pooling


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
    """The teacher's finished sentence vectors, by a map that the student keeps, so that one index serves both.

    A finished vector is the one that users of a model get: its pooled vector and, for the teacher, what the modules
    behind the pooling make of it, such as a dense layer in its folder. Make the terms on finished vectors, whole and
    cut to prefixes, and the terms on hidden states, where they have a weight.

    Vectors are scaled to length one if the teacher's files say so, or say nothing about it; else the student learns
    their length too.
    """
    student = pairing.student
    student_pooling = finished_pooling(pairing.sentence, options.pooling)
    teacher_pooling = finished_pooling(pairing.sentence)
    student_width = student_pooling.pooled_width(student.hidden)
    pooled_width = teacher_pooling.pooled_width(pairing.teacher.width)
    # The modules behind the teacher's pooling may change the width once more.
    width = teacher_pooling.width(pairing.teacher.width)

    keeps_map = _keeps_map(options, student_width, pooled_width)
    _check_prefixes(options.truncate, width)
    kept_map: LearnedMap | None = None
    if keeps_map:
        # Terms whose maps have the same name share one map, so the terms of all prefixes share this one.
        kept_map = LearnedMap(inputs=student_width, outputs=width, name="vector", kept=True, bias=options.bias)
    objective = "pooled_cosine" if options.distance == "cosine" else "pooled_distance"
    options_of_distance: dict[str, Any] = {}
    if options.distance == "l2_squared":
        options_of_distance["squared"] = True
    whole = Term(
        name="vector",
        objective=objective,
        student=stream_keys("vector", layer=student.layers),
        teacher=stream_keys("vector", layer=pairing.teacher.output_layer),
        options=options_of_distance,
        learned_map=kept_map,
        normalise=teacher_pooling.normalize,
    )
    terms = [whole]
    # The same distance of vectors that are cut to their first components, so that users may cut them.
    for prefix in options.truncate:
        options_of_prefix = {**options_of_distance, "prefix": prefix}
        terms.append(replace(whole, name=f"vector_{prefix}", options=options_of_prefix))
    # These terms read the teacher's layers. A teacher that is a file of vectors has none.
    if options.hidden_weight or options.layer_mapping:
        terms += sentence_hidden_terms(
            pairing,
            options.layer_mapping,
            last_weight=options.hidden_weight,
            layer_weight=options.layer_weight,
        )
    return weighted_terms(terms, method="aligned_embedding")


def _keeps_map(options: AlignedEmbeddingOptions, student_width: int, teacher_width: int) -> bool:
    """Return whether the student keeps a map behind its pooling.

    Args:
        options: The method's options.
        student_width: Width of the student's pooled vectors.
        teacher_width: Width of the teacher's.

    Raises:
        RecipeError: for widths that need a map where none is wanted, and a bias where there is no map.
    """
    has_other_width = student_width != teacher_width
    if options.map == "none" and has_other_width:
        raise RecipeError(
            f"'map: none' needs vectors of equal width, but the student's have {student_width} numbers and the "
            f"teacher's {teacher_width}; leave 'map' out, or give a student as wide as the teacher."
        )
    keeps_map = options.map == "always" or has_other_width
    if options.bias and not keeps_map:
        raise RecipeError(
            "'bias' belongs to the learned map, but student and teacher are equally wide, so there is none; set "
            "'map: always', or leave 'bias' out."
        )
    return keeps_map


def _check_prefixes(prefixes: list[int], width: int) -> None:
    """Refuse widths to cut vectors to that are not below their width, or that are named twice."""
    is_repeated = len(set(prefixes)) < len(prefixes)
    if is_repeated or any(prefix >= width for prefix in prefixes):
        raise RecipeError(
            f"truncate is {prefixes}, but the teacher's vectors have {width} numbers; give widths below {width}, "
            "each only once."
        )
