"""Layers of the student beside those of the teacher that they learn from."""

from collections.abc import Iterable

from limbeck.core.records import LayerLink
from limbeck.methods.term import Term


def describe_layers(terms: Iterable[Term]) -> list[LayerLink]:
    """Say which layers of the student learn from which of the teacher, for the record; 0 is the embedding.

    Args:
        terms: Of a stage.

    Returns:
        An entry a pair of layers, with the names of its terms; terms over outputs alone have no layers.
    """
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    terms = list(terms)
    for term in terms:
        own, theirs = (
            tuple(sorted({key.layer for key in side if key.kind != "logits"})) for side in (term.student, term.teacher)
        )
        if own and theirs:
            found.setdefault((own, theirs), []).append(term.name)
    aligned = {term.name for term in terms if _aligns_vectors(term)}
    return [
        LayerLink(
            student=list(own), teacher=list(theirs), terms=names, **{"vectors": True} if aligned & {*names} else {}
        )
        for (own, theirs), names in sorted(found.items())
    ]


def _aligns_vectors(term: Term) -> bool:
    """Whether a term compares the sentence vectors that the student will make with the teacher's, text by text.

    Relations of the texts of a batch hold in any space, and a map that is not kept is between the spaces.
    """
    kinds = {key.kind for key in (*term.student, *term.teacher)}
    in_place = term.learned_map is None or term.learned_map.kept
    return bool(term.teacher) and kinds <= {"pooled", "vector"} and not term.batch_coupled and in_place
