"""The streams of a student that its run teaches, by which a search for a shape chooses its loss.

A *stream* is a tensor of a model at a layer, such as `hidden` or `query`; see `limbeck.models.streams`. A method has
one or more *terms*, each a loss between streams of the student and of the teacher.
"""

from limbeck.methods.term import Term
from limbeck.models.streams import OF_OUTPUT
from limbeck.recipe.plan import RunPlan


def loss_name(plan: RunPlan) -> str:
    """The loss by which shapes are compared: `hidden` (last hidden states), `relations` (of attention) or `vectors`.

    It is `hidden` if the method teaches the output of the student's last block, or a stream that is made of it. A
    method that teaches only queries, keys and values of that block leaves its hidden states untrained, so that only the
    relations of these can be compared. It is `vectors` (finished or pooled) where no model is read, as with stored
    outputs: these have no layers.
    """
    if not plan.teacher_info.is_read:
        return "vectors"
    last_layer = plan.student.layers
    for term in _terms_of(plan):
        for key in term.student:
            is_of_last_layer = key.name in ("hidden", "cls") and key.layer == last_layer
            if key.name in OF_OUTPUT or is_of_last_layer:
                return "hidden"
    return "relations"


def taught_layers(plan: RunPlan) -> dict[int, list[int]]:
    """Return the teacher layers whose hidden states a run teaches, by the student layer that learns from them.

    This is phi of the comparative study's equation 6 (arXiv 2310.08797). It is read from the terms of all stages that
    teach the hidden state of a single student layer. Where a term chooses among several teacher layers, at random or by
    attention, all of them are in the list. A run without such terms maps the student's last layer to the teacher's.
    """
    teacher_layers: dict[int, set[int]] = {}
    for term in _terms_of(plan):
        reads_one_layer = len(term.student) == 1 and term.student[0].name == "hidden"
        # A transform, such as a random choice, makes a single target of the hidden states of several teacher layers.
        has_one_target = len(term.teacher) == 1 or term.transform is not None
        if not reads_one_layer or not has_one_target:
            continue
        [student_key] = term.student
        layers = {key.layer for key in term.teacher if key.name == "hidden"}
        if layers:
            teacher_layers.setdefault(student_key.layer, set()).update(layers)
    if not teacher_layers:
        teacher_layers = {plan.student.layers: {plan.teacher.layers}}
    return {layer: sorted(teacher_layers[layer]) for layer in sorted(teacher_layers)}


def _terms_of(plan: RunPlan) -> list[Term]:
    """Return the terms of all stages of a run."""
    return [term for stage in plan.own_stages for term in stage.terms]
