"""A method in a loop of your own: its options, its terms for two models, and how these make sentence vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from limbeck.core.mistakes import explain
from limbeck.errors import LimbeckError, RecipeError
from limbeck.methods.pairing import Pairing, Task
from limbeck.methods.registry import read_method, usual_terms
from limbeck.methods.term import Term
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.models.streams import OF_SENTENCES, StreamKey
from limbeck.recipe.stage_terms import compose_terms, kept_map_of, streams_read
from limbeck.recipe.stages import StageSpec
from limbeck.training.loop_models import LoopModel

_PLACE = "Distiller"
"""Where a method stands, for messages."""


def read_stage(method: str, options: Mapping[str, Any], task: Task) -> StageSpec:
    """Read a method and its options.

    Raises:
        RecipeError: for an unknown method or option, and a task that the method is not made for.
    """
    try:
        stage = StageSpec(method={"name": method, **options})
    except ValidationError as error:
        raise RecipeError(f"{_PLACE}.{explain(error)}") from None
    known_method, _ = read_method(stage.method)
    if not known_method.takes(task):
        raise RecipeError(
            f"{_PLACE}: {method} is made for the tasks {', '.join(known_method.tasks)}, not for '{task}'; choose "
            "another method or another task."
        )
    return stage


def compose_for_loop(stage: StageSpec, pairing: Pairing, student: LoopModel, teacher: LoopModel) -> list[Term]:
    """Compose the terms of a method, and refuse those that read what the models do not give.

    Args:
        stage: The method with its options.
        pairing: The two models.
        student: The student.
        teacher: The teacher.

    Raises:
        LimbeckError: one line. For a module whose parts are named it lists the methods that could be used.
    """
    try:
        terms = compose_terms(stage, pairing, _PLACE)
    except LimbeckError as error:
        if student.readable is None and teacher.readable is None:
            raise
        raise RecipeError(f"{error} {_describe_usable_methods(pairing, student, teacher)}") from None
    for term in terms:
        for model, keys in ((student, term.student), (teacher, term.teacher)):
            unreadable = _unreadable_streams(model, keys)
            if unreadable:
                # Only modules whose parts are named have streams that cannot be read.
                assert model.readable is not None
                raise RecipeError(
                    f"{_PLACE}: the term '{term.name}' reads {unreadable[0]} of {model.title}, of which only "
                    f"{', '.join(model.readable)} can be read. {_describe_usable_methods(pairing, student, teacher)}"
                )
    return terms


def _unreadable_streams(model: LoopModel, keys: Sequence[StreamKey]) -> list[str]:
    """Return the names of streams that a model does not give."""
    if model.readable is None:
        return []
    return [key.name for key in keys if key.name not in model.readable]


def _describe_usable_methods(pairing: Pairing, student: LoopModel, teacher: LoopModel) -> str:
    """Return a sentence with the methods that, by their usual options, read only what both models give."""
    names = []
    for name, terms in usual_terms(pairing):
        unreadable = []
        for term in terms:
            unreadable += [*_unreadable_streams(student, term.student), *_unreadable_streams(teacher, term.teacher)]
        if not unreadable:
            names.append(name)
    return f"Methods that can be used: {', '.join(names)}."


def sentence_heads(
    terms: Sequence[Term], pairing: Pairing, student: LoopModel, pooling: str | None
) -> tuple[SentenceHead, SentenceHead]:
    """Make the modules that compute the sentence vectors of the student and of the teacher.

    Both models make their vectors as the teacher's files describe it. Where these say nothing, both pool as the options
    name it, or by the mean.

    Args:
        terms: The terms.
        pairing: The two models, and how the teacher makes its vectors.
        student: The student.
        pooling: The pooling that the method's options name; None where they do not.

    Raises:
        LimbeckError: for vectors that one of the models does not make.
    """
    streams = streams_read(terms)
    if streams.isdisjoint(OF_SENTENCES):
        # No term reads vectors, so the pooling does not matter.
        return SentenceHead("mean"), SentenceHead("mean")
    title = pairing.teacher.title
    # How the teacher's files say that it makes its vectors; None where they do not.
    described = pairing.sentence
    if described is not None:
        described.check_whole(title, pairing.teacher.width)

    student_vectors = finished_pooling(described, pooling)
    teacher_vectors = finished_pooling(described)
    if "vector" not in streams:
        # The terms read pooled tokens before any module, so both models pool alike.
        if described is not None and described.pooling != student_vectors.pooling:
            raise RecipeError(
                f"{_PLACE}: pooling is '{pooling}', but {title} already pools by '{described.pooling}'; leave "
                "'pooling' out."
            )
        teacher_vectors = student_vectors
    elif kept_map_of(terms) is not None:
        # The map takes the place of the teacher's modules, and vectors are normalised behind it.
        student_vectors = replace(student_vectors, modules=(), normalize=False)
    _check_student_vectors(student_vectors, student, pairing)
    return SentenceHead(student_vectors), SentenceHead(teacher_vectors)


def _check_student_vectors(vectors: SentencePooling, student: LoopModel, pairing: Pairing) -> None:
    """Refuse a student whose width the trained vectors do not fit, or whose own files name another pooling.

    Args:
        vectors: How the student's vectors are made in the training: a pooling, and modules of fixed widths behind it.
        student: The student.
        pairing: The shapes of the two models.
    """
    width = pairing.student.hidden
    if not vectors.fits(width):
        raise RecipeError(
            f"{_PLACE}: {pairing.teacher.title} makes its vectors by {vectors}, which cannot follow a student of "
            f"width {width}; give a student of the teacher's width, or use the method aligned_embedding."
        )
    # After the training the student is used with the pooling of its own files.
    if student.sentence is not None and student.sentence.pooling != vectors.pooling:
        raise RecipeError(
            f"{_PLACE}: {student.title} pools by '{student.sentence.pooling}', but its teacher's vectors are "
            f"pooled by '{vectors.pooling}'; give the student the same pooling."
        )
