"""A run's learned maps between the widths of student and teacher.

They are linear, without bias, so that zero stays zero, as the papers' W.

They start as the identity, cut or filled with zeros where widths differ: a student that starts from its teacher's
layers is then near it from the first step, where a random map would first have to be learned away. The papers do
not say how theirs start. A map that the student keeps starts by least squares on its text (`start_maps`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from limbeck.methods.term import LearnedMap, Term


class HeadMaps(nn.Module):
    """One map for every relation head: the projections of `direct_mse`.

    Args:
        heads: Relation heads R.
        inputs: Width of a student's head.
        outputs: Width of a teacher's head.
    """

    def __init__(self, heads: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(inputs, outputs).repeat(heads, 1, 1))


def make_learned_map(spec: LearnedMap) -> nn.Linear | HeadMaps:
    """Make the module of a learned map."""
    if spec.heads is not None:
        return HeadMaps(spec.heads, spec.inputs // spec.heads, spec.outputs // spec.heads)
    learned = nn.Linear(spec.inputs, spec.outputs, bias=spec.bias)
    nn.init.eye_(learned.weight)
    if spec.bias:
        nn.init.zeros_(learned.bias)
    return learned


def kept_maps(terms: Iterable[Term]) -> dict[str, LearnedMap]:
    """Return the maps that the student of these terms keeps, by name."""
    maps = ((term.map_name, term.learned_map) for term in terms)
    return {name: learned for name, learned in maps if learned is not None and learned.kept}


Learned: TypeAlias = tuple[Sequence[Term], Mapping[str, Tensor]]
"""The terms of a trained stage, and the weights that it leaves beside its student's."""
STUDENT_WEIGHTS = "student."
"""Prefix of the student's weights in the state of a `DistillationModule`; all others are a run's learned maps."""


def map_arguments(learned: nn.Module | None) -> dict[str, Any]:
    """Return the keyword under which an objective takes a learned map: `projection`, or `projections` of its heads."""
    if learned is None:
        return {}
    return {"projections": learned.weight} if isinstance(learned, HeadMaps) else {"projection": learned}
