"""The terms of a stage: composed for its models, and what they read.

A *term* is one weighted loss between two models. It names the *streams* that it reads of each model, such as the hidden
states of a layer, scores (`logits`) or sentence vectors. Its *unit* is what it counts: tokens, rows, labels, or the
documents of a query as one `group`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import read_method
from limbeck.methods.term import LearnedMap, Term
from limbeck.models.heads import Head
from limbeck.models.streams import OF_SENTENCES
from limbeck.objectives import OBJECTIVES
from limbeck.recipe.mistakes import at_place
from limbeck.recipe.stages import StageSpec


def compose_terms(stage: StageSpec, pairing: Pairing, place: str) -> list[Term]:
    """Compose the method of a stage for its models.

    Args:
        stage: The stage.
        pairing: Its models, and the task of its corpus.
        place: The place of the stage in the recipe, for messages.

    Raises:
        LimbeckError: for a task that the method is not made for, and options that do not suit the models.
    """
    method, options = read_method(stage.method)
    if not method.takes(pairing.task):
        raise RecipeError(
            f"{place}.method: {method.name} is made for {', '.join(method.tasks)}, not for {pairing.task}; leave out "
            "corpus.task or choose another method (`limbeck methods` lists them)."
        )
    with at_place(f"{place}.method"):
        terms = method.compose(options, pairing)
        for term in terms:
            for key in term.teacher:
                pairing.teacher.check_gives(key, term.name)
            _check_has_labels(term, pairing)
        return terms


def _check_has_labels(term: Term, pairing: Pairing) -> None:
    """Refuse a term that learns labels of rows that have none.

    Raises:
        RecipeError: naming the term.
    """
    learns_labels = OBJECTIVES[term.objective].takes_labels
    if learns_labels and not pairing.labelled:
        raise RecipeError(
            f"the term '{term.name}' learns from labels, but the rows have none (corpus.task.labelled is false); "
            "give labelled rows, or set the weight of this term to 0 (in bert_pkd, set soft_label_share to 1)."
        )


def needed_head(terms: Sequence[Term], pairing: Pairing, owner: Literal["student", "teacher"]) -> Head | None:
    """The head that terms read scores from, or None if they read none.

    Args:
        terms: The terms of a stage.
        pairing: Its models, and the task of its corpus.
        owner: The model whose head it is.
    """
    for term in terms:
        streams = term.student if owner == "student" else term.teacher
        if any(key.name == "logits" for key in streams):
            return pairing.head
    return None


def streams_read(terms: Sequence[Term]) -> set[str]:
    """Names of the streams that terms read of either model."""
    return {key.name for term in terms for key in (*term.student, *term.teacher)}


def kept_map_of(terms: Sequence[Term]) -> LearnedMap | None:
    """The learned map that a student keeps behind its pooling, if any."""
    for term in terms:
        if term.learned_map is not None and term.learned_map.kept:
            return term.learned_map
    return None


def compares_tokens(term: Term) -> bool:
    """Whether a term compares the tokens of student and teacher one by one.

    Sentence vectors and the vector of the first token (`cls`) are one vector for a whole text.
    """
    return any(key.name not in (*OF_SENTENCES, "cls") for key in term.student)


def takes_class_weights(term: Term) -> bool:
    """Whether a term reads hard labels, whose classes can be weighted."""
    return OBJECTIVES[term.objective].takes_class_weights


def learn_labels(terms: Sequence[Term]) -> bool:
    """Whether a term learns labels, rather than what a teacher makes of the rows.

    A term that reads no stream of the teacher has only the labels to learn from.
    """
    return any(term.unit == "label" or not term.teacher for term in terms)
