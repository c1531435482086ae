"""The weights of both models' layers in earth mover's distances: they belong to the run and are resumed with it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from limbeck.methods.term import Term
from limbeck.objectives import OBJECTIVES
from limbeck.objectives.earth_mover import EmdTerm, cost_attention, uniform_weights


class LayerWeights(nn.Module):
    """Weights that start equal, and after each training batch follow the costs of its distances.

    Several distances, of hidden states and of attention, share one pair of weights: the mean of the updates by each,
    as in the code of BERT-EMD's authors (see `limbeck.objectives.earth_mover`).

    Args:
        student: Layers of the student.
        teacher: Layers of the teacher.
        temperature: Of the cost attention; None keeps the weights equal.
    """

    student: Tensor
    teacher: Tensor

    def __init__(self, student: int, teacher: int, temperature: float | None) -> None:
        super().__init__()
        self.temperature = temperature
        self.register_buffer("student", uniform_weights(student))
        self.register_buffer("teacher", uniform_weights(teacher))

    @torch.no_grad()
    def update(self, distances: Sequence[EmdTerm]) -> None:
        """Move the weights after a batch."""
        if self.temperature is None or not distances:
            return
        weights = [
            cost_attention(term.costs, term.flow, self.student, self.teacher, temperature=self.temperature)
            for term in distances
        ]
        self.student.copy_(torch.stack([student for student, _ in weights]).mean(0))
        self.teacher.copy_(torch.stack([teacher for _, teacher in weights]).mean(0))


def make_layer_weights(terms: Sequence[Term]) -> LayerWeights | None:
    """Make the weights that the terms over layers share; None where there is no such term."""
    over_layers = [term for term in terms if OBJECTIVES[term.objective].takes_layers]
    if not over_layers:
        return None
    term = over_layers[0]
    streams = OBJECTIVES[term.objective].student_streams
    return LayerWeights(len(term.student) // streams, len(term.teacher) // streams, term.cost_attention)
