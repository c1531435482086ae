"""Links between layers for the record: each layer of the student beside the teacher's layers it learns from."""

from collections.abc import Iterable

from limbeck.core.records import LayerLink
from limbeck.methods.term import Term
from limbeck.models.streams import StreamKey


def describe_layers(terms: Iterable[Term]) -> list[LayerLink]:
    """Describe for the record which layers of the student learn from which of the teacher; 0 is the embedding.

    Args:
        terms: The terms of a stage.

    Returns:
        A link for each pair of layers, with the names of its terms; terms over outputs alone have no layers.
    """
    links: dict[tuple[tuple[int, ...], tuple[int, ...]], LayerLink] = {}
    for term in terms:
        student = _layers_of(term.student)
        teacher = _layers_of(term.teacher)
        if not student or not teacher:
            continue
        link = links.setdefault((student, teacher), LayerLink(student=list(student), teacher=list(teacher), terms=[]))
        link.terms.append(term.name)
        if _aligns_vectors(term):
            link.vectors = True
    return [link for _, link in sorted(links.items())]


def _layers_of(keys: Iterable[StreamKey]) -> tuple[int, ...]:
    """Return the layers of streams, in order; logits are of the output, not of a layer."""
    return tuple(sorted({key.layer for key in keys if key.name != "logits"}))


def _aligns_vectors(term: Term) -> bool:
    """Return whether a term compares the sentence vectors that the student will make with the teacher's, text by text.

    Relations of the texts of a batch hold in any space, and a map that is not kept is between the spaces.
    """
    streams = {key.name for key in (*term.student, *term.teacher)}
    if not term.teacher or not streams <= {"pooled", "vector"}:
        return False
    compares_in_place = term.learned_map is None or term.learned_map.kept
    return compares_in_place and not term.batch_coupled
