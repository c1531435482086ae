"""The run's learned maps: linear, without bias, so that zero stays zero, as the papers' W."""

from __future__ import annotations

import math

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
        # Each head is drawn as nn.Linear draws a map of its width.
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs).uniform_(-bound, bound))


def make_learned_map(spec: LearnedMap) -> nn.Linear | HeadMaps:
    """Make the module of a learned map, at random values from the global generator."""
    if spec.heads is not None:
        return HeadMaps(spec.heads, spec.inputs // spec.heads, spec.outputs // spec.heads)
    return nn.Linear(spec.inputs, spec.outputs, bias=False)
