"""Links between layers for the record: each layer of the student beside the teacher's layers it learns from."""

from collections.abc import Iterable

from limbeck.core.records import LayerLink
from limbeck.methods.term import Term
from limbeck.models.streams import StreamKey


def describe_layers(terms: Iterable[Term], *, rotary: bool = False) -> list[LayerLink]:
    """Describe for the record which layers of the student learn from which of the teacher; layer 0 is the embedding.

    Args:
        terms: The terms of a stage.
        rotary: Whether one of the models has rotary positions.

    Returns:
        A link for each set of student layers with the teacher layers that its terms compare them with, and the names of
        these terms, in the order of the layers. Terms on outputs, such as soft labels, make no link.
    """
    # The links by the layers of the student and those of the teacher. Most terms are on one layer of each.
    links: dict[tuple[tuple[int, ...], tuple[int, ...]], LayerLink] = {}
    for term in terms:
        student_layers = _layers_of(term.student)
        teacher_layers = _layers_of(term.teacher)
        if not student_layers or not teacher_layers:
            continue
        layers = (student_layers, teacher_layers)
        if layers not in links:
            links[layers] = LayerLink(student=list(student_layers), teacher=list(teacher_layers), terms=[])
        link = links[layers]
        link.terms.append(term.name)
        if _aligns_vectors(term):
            link.vectors = True
        # Rotary positions turn queries and keys before they are compared.
        if rotary and _compares_queries_or_keys(term):
            link.turned = True
    return [link for _, link in sorted(links.items())]


def _layers_of(keys: Iterable[StreamKey]) -> tuple[int, ...]:
    """Return the layers of streams, in order, each once; logits are the model's output, and of no layer."""
    return tuple(sorted({key.layer for key in keys if key.name != "logits"}))


def _compares_queries_or_keys(term: Term) -> bool:
    """Whether a term reads the streams that rotary positions turn."""
    return any(key.name in ("query", "key") for key in (*term.student, *term.teacher))


def _aligns_vectors(term: Term) -> bool:
    """Return whether a term makes the student's sentence vectors near the teacher's own, in one space.

    Only then can the vectors of both models be searched together. Two sorts of terms on sentence vectors do not do
    this: terms that relate the texts of a batch, since relations hold in any space, and terms through a learned map
    that the student does not keep, since the student's vectors then stay in a space of their own.
    """
    streams = {key.name for key in (*term.student, *term.teacher)}
    if not term.teacher or not streams <= {"pooled", "vector"}:
        return False
    is_in_one_space = term.learned_map is None or term.learned_map.kept
    return is_in_one_space and not term.batch_coupled
