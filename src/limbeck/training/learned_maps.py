"""The learned maps of a run: linear layers from the width of the student's vectors to that of the teacher's.

A term that compares vectors of different widths has a map (the W of the papers). Most maps are needed in training alone
and belong to the run. A *kept* map becomes part of the student. Maps have no bias unless a term asks for it.

A map starts as the identity, cut or filled with zeros where the widths differ. A student that starts from its teacher's
layers is then near its teacher from the first step, while a random map would first have to be unlearned. The papers do
not say how their maps start. A kept map starts by least squares on the text instead (`start_maps`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from limbeck.methods.term import LearnedMap, Term

STUDENT_WEIGHTS = "student."
"""Prefix of the student's weights in the state of a `DistillationModule`; all others are learned beside it."""


class Learned(NamedTuple):
    """The learned maps and layer weights that a stage leaves beside its student.

    Attributes:
        terms: The terms of the stage.
        weights: Tensors by their names in the state of its `DistillationModule`.
    """

    terms: Sequence[Term]
    weights: Mapping[str, Tensor]


class HeadMaps(nn.Module):
    """One map for every relation head, `[R, inputs, outputs]` in all: the projections of the objective `direct_mse`.

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
    maps: dict[str, LearnedMap] = {}
    for term in terms:
        if term.learned_map is not None and term.learned_map.kept:
            maps[term.map_name] = term.learned_map
    return maps


def map_arguments(learned: nn.Module | None) -> dict[str, Any]:
    """Return the keyword under which an objective takes a learned map: `projection`, or `projections` of its heads."""
    if learned is None:
        return {}
    if isinstance(learned, HeadMaps):
        return {"projections": learned.weight}
    return {"projection": learned}
