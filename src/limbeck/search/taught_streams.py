"""The streams of a student that its run teaches, by which a search for a shape chooses its loss."""

from limbeck.methods.term import Term
from limbeck.models.streams import OF_OUTPUT
from limbeck.recipe.plan import RunPlan


def loss_name(plan: RunPlan) -> str:
    """Return the loss by which shapes are compared: `hidden`, or `relations`.

    It is `hidden` where the method teaches a stream at the end of the student's last block, or behind it. A method that
    stops at the queries, keys and values of that block leaves its hidden states untrained, so that only the relations
    of these can be compared.
    """
    last_layer = plan.student.layers
    for term in _terms_of(plan):
        for key in term.student:
            is_of_last_layer = key.name in ("hidden", "cls") and key.layer == last_layer
            if key.name in OF_OUTPUT or is_of_last_layer:
                return "hidden"
    return "relations"


def taught_layers(plan: RunPlan) -> dict[int, list[int]]:
    """Return phi of equation 6: the teacher's layers whose hidden states a method teaches, by student layer.

    They are those of its terms between single hidden states, in any stage. A mapping at random or by attention has all
    layers that it chooses from. A method without such terms has the last layer of both models.
    """
    teacher_layers: dict[int, set[int]] = {}
    for term in _terms_of(plan):
        # A transform makes one hidden state of several layers of the teacher.
        has_one_target = len(term.teacher) == 1 or term.transform is not None
        if len(term.student) != 1 or not has_one_target or term.student[0].name != "hidden":
            continue
        layers = {key.layer for key in term.teacher if key.name == "hidden"}
        if layers:
            teacher_layers.setdefault(term.student[0].layer, set()).update(layers)
    if not teacher_layers:
        teacher_layers = {plan.student.layers: {plan.teacher.layers}}
    return {layer: sorted(teacher_layers[layer]) for layer in sorted(teacher_layers)}


def _terms_of(plan: RunPlan) -> list[Term]:
    """Return the terms of all stages of a run."""
    return [term for stage in plan.own_stages for term in stage.terms]
