"""Transforms of a teacher's streams into the stream that a term compares the student with.

They merge attention heads, draw one of several layers, join layers, or scale scores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class HeadGroups:
    """Attention heads merged group by group: neighbours averaged, or one of them chosen.

    Args:
        heads: Attention heads of the stream; a multiple of `groups`.
        groups: Number of groups, each of which becomes one head.
        chosen: For each group the head that is kept, counted from 0 within the group; None averages the group.

    Source:
        MLKD-BERT (arXiv 2407.02775) section 4.5: average and random mapping. Concat-split needs none of this: it is
        the plain division of the width.
    """

    heads: int
    groups: int
    chosen: tuple[int, ...] | None = None

    def merge(self, stream: Tensor) -> Tensor:
        """Merge the heads of a stream.

        Args:
            stream: `[B, L, heads * D]`, heads concatenated.

        Returns:
            `[B, L, groups * D]`.
        """
        size = stream.shape[-1] // self.heads
        heads_of_group = self.heads // self.groups
        split = stream.unflatten(-1, (self.groups, heads_of_group, size))  # [B, L, groups, heads of a group, D]
        if self.chosen is None:
            return split.mean(-2).flatten(-2)
        # Two lists of indices choose one head of each group: of group g the head chosen[g].
        groups = list(range(self.groups))
        return split[..., groups, list(self.chosen), :].flatten(-2)


@dataclass(frozen=True)
class Course:
    """The progress of a training, for transforms that change with it.

    Args:
        epoch: Whole epochs that are done; a stream of text is one epoch.
        share: Share of the steps that is done, from 0 to 1.
    """

    epoch: int = 0
    share: float = 0.0


class Transform(Protocol):
    """A function from the teacher's streams to the stream that the student is compared with."""

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the stream to compare with, without gradient.

        Args:
            student: Returns the student's stream, mapped by the term's learned map if it has one. It is a function
                since most transforms do not need the stream.
            teacher: The teacher's streams.
            course: The progress of the training.
        """
        ...


@dataclass(frozen=True)
class DrawnLayer:
    """One of the teacher's layers, drawn at random.

    As many of the teacher's layers are drawn as student layers are taught, and sorted; each student layer gets one.

    Args:
        place: Place of the student layer among the layers that are taught, from 0.
        count: Number of student layers that are taught.
        seed: Seed of the draw.
        each_epoch: Draw anew in every epoch; else once.

    Source:
        RAIL-KD (arXiv 2109.10164): layers drawn without replacement in every epoch, and sorted.
    """

    place: int
    count: int
    seed: int
    each_epoch: bool

    def choose(self, layers: int, epoch: int) -> int:
        """Return the drawn layer, from 0.

        Args:
            layers: Layers of the teacher.
            epoch: The epoch, from 0.
        """
        # Every student layer makes the same draw of all layers, from the same seed, and takes the layer at its place.
        number_of_draw = epoch if self.each_epoch else 0
        draw = random.Random(f"{self.seed}/{number_of_draw}")
        layers_in_order = sorted(draw.sample(range(layers), self.count))
        return layers_in_order[self.place]

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the drawn layer's stream."""
        return teacher[self.choose(len(teacher), course.epoch)]


@dataclass(frozen=True)
class AttendedLayers:
    """The mean of all layers of the teacher, weighted by their likeness to the student's vector.

    target = Σ_j a_j h^T_j with a = softmax_j(h^S · h^T_j), for each vector, over all layers j. The weights a carry no
    gradient: within a step the target is a constant.

    Source:
        ALP-KD (arXiv 2012.14022), which may also restrict a student layer to a bucket of teacher layers; this does not.
    """

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the weighted sum of the streams, in float32 or more."""
        import torch

        stacked = torch.stack(list(teacher), -2)
        layers = stacked.to(torch.promote_types(stacked.dtype, torch.float32))  # [..., layers, width]
        vectors = student().detach().to(layers.dtype).unsqueeze(-2)  # [..., 1, width]
        products = (layers * vectors).sum(-1)  # [..., layers]
        weights = products.softmax(-1).unsqueeze(-1)  # [..., layers, 1]
        return (weights * layers).sum(-2)


@dataclass(frozen=True)
class AnnealedScores:
    """The teacher's scores times a factor that grows to 1 during the training.

    target = Φ(T) z^T with Φ(T) = 1 − (T − 1) / τ_max. T falls from τ_max to 1 in whole steps, and each value lasts for
    an equal share of the training.

    Args:
        highest: τ_max, the temperature of the first steps.

    Source:
        Annealing KD (Jafari et al. 2021, arXiv 2104.07163), stage I.
    """

    highest: int

    def scale(self, share: float) -> float:
        """Return Φ(T) after a share of the steps."""
        # The number of times that T has fallen; at the very end, where share is 1, T stays 1.
        falls = min(int(share * self.highest), self.highest - 1)
        temperature = self.highest - falls
        return 1 - (temperature - 1) / self.highest

    def make(self, student: Callable[[], Tensor], teacher: Sequence[Tensor], course: Course) -> Tensor:
        """Return the scaled scores."""
        return teacher[0] * self.scale(course.share)
