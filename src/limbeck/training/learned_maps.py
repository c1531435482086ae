"""The run's learned maps: linear, without bias, so that zero stays zero, as the papers' W.

They start as the identity, cut or filled with zeros where widths differ: a student that starts from its teacher's
layers is then near it from the first step, where a random map would first have to be learned away. The papers do not
say how theirs start.
"""

from __future__ import annotations

import torch
from torch import nn

from limbeck.methods.composition import LearnedMap


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
    learned = nn.Linear(spec.inputs, spec.outputs, bias=False)
    nn.init.eye_(learned.weight)
    return learned
