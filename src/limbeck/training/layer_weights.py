"""The weights of both models' layers in earth mover's distances; they belong to the run and are resumed with it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from limbeck.methods.term import Term
from limbeck.objectives import OBJECTIVES
from limbeck.objectives.earth_mover import EmdTerm
from limbeck.objectives.layer_transport import cost_attention, uniform_weights


class LayerWeights(nn.Module):
    """Weights that start equal, and after each training batch follow the costs of its distances.

    Several distances, of hidden states and of attention, share one pair of weights: the mean of the updates by each,
    as in the code of BERT-EMD's authors (see `limbeck.objectives.layer_transport`).

    Args:
        student_layers: Number of the student's layers.
        teacher_layers: Number of the teacher's layers.
        temperature: Temperature of the cost attention; None keeps the weights equal.

    Attributes:
        student: Weights of the student's layers, `[student_layers]`, with the sum 1.
        teacher: Weights of the teacher's layers, likewise.
    """

    student: Tensor
    teacher: Tensor

    def __init__(self, student_layers: int, teacher_layers: int, temperature: float | None) -> None:
        super().__init__()
        self.temperature = temperature
        self.register_buffer("student", uniform_weights(student_layers))
        self.register_buffer("teacher", uniform_weights(teacher_layers))

    @torch.no_grad()
    def update(self, distances: Sequence[EmdTerm]) -> None:
        """Set the weights, after a batch, to the mean of those that each of its distances gives.

        Args:
            distances: The distances of the batch, with their costs and flows.
        """
        # Without a temperature the weights stay equal.
        if self.temperature is None or not distances:
            return
        student_weights: list[Tensor] = []
        teacher_weights: list[Tensor] = []
        for distance in distances:
            student, teacher = cost_attention(
                distance.costs, distance.flow, self.student, self.teacher, temperature=self.temperature
            )
            student_weights.append(student)
            teacher_weights.append(teacher)
        self.student.copy_(torch.stack(student_weights).mean(0))
        self.teacher.copy_(torch.stack(teacher_weights).mean(0))


def make_layer_weights(terms: Sequence[Term]) -> LayerWeights | None:
    """Make the weights that the terms over layers share; None where there is no such term."""
    over_layers = [term for term in terms if OBJECTIVES[term.objective].takes_layers]
    if not over_layers:
        return None
    # All of these terms are over the same layers, so the first one says how many there are. A term lists the streams
    # of all layers: one of each for a distance of hidden states, two (queries and keys) for a distance of attention.
    first = over_layers[0]
    streams_of_layer = OBJECTIVES[first.objective].student_streams
    return LayerWeights(
        student_layers=len(first.student) // streams_of_layer,
        teacher_layers=len(first.teacher) // streams_of_layer,
        temperature=first.cost_attention,
    )
