"""The division of a loss: each term's total by its count, over all micro-batches and ranks of a step.

A *step* of the optimizer is made of *micro-batches*, on each process (*rank*) its own. Every *term* of the loss gives a
total and a count for a micro-batch. The count is proportional to a *unit* of the batch, such as its tokens or samples,
and units are known before the forward pass.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.methods.term import Term
from limbeck.objectives.registry import OBJECTIVES
from limbeck.training.units import UNITS


class DividedLoss(NamedTuple):
    """The loss of a micro-batch, divided.

    Attributes:
        loss: The weighted sum of the terms' shares, with gradient, for a wrapper that takes the mean over the ranks.
        shares: For each term the part that the micro-batch has in the mean of the term over its whole step, without
            gradient and weight.
    """

    loss: Tensor
    shares: dict[str, Tensor]


def divide_loss(
    terms: Sequence[Term],
    outputs: Mapping[str, tuple[Tensor, Tensor]],
    units: Tensor,
    *,
    units_of_step: Tensor | None = None,
    rank_count: int = 1,
) -> DividedLoss:
    """Weigh and divide the terms of a micro-batch by the counts of its whole step.

    Args:
        terms: The terms.
        outputs: For each term its total and its count, as `DistillationModule` returns them.
        units: Units of the micro-batch, see `count_units`.
        units_of_step: Units of the whole step over all ranks; None where the micro-batch is the whole.
        rank_count: Ranks whose gradients are averaged.
    """
    if units_of_step is None:
        units_of_step = units
    loss = torch.zeros((), device=units.device)
    shares: dict[str, Tensor] = {}
    for term in terms:
        total, count = outputs[term.name]
        # The mean over the micro-batch.
        mean = total / count.clamp(min=1)
        if OBJECTIVES[term.objective].gathers_rows:
            # Each rank has computed the mean over the rows of all ranks, which are the whole step: such a term has one
            # micro-batch a step. The backward pass of the gathering sums the gradients over the ranks.
            share = mean
            loss = loss + term.weight * share
        else:
            # The share is total / count of the step, but that count is known only after the forward passes of the
            # whole step. Counts are proportional to units, so
            #     count / count of the step = units / units of the step,
            #     share = mean · units / units of the step.
            unit = UNITS.index(term.unit)
            share_of_units = units[unit] / units_of_step[unit].clamp(min=1)
            share = mean * share_of_units.to(mean.dtype)
            # The distributed wrapper takes the mean of the ranks' gradients; times the ranks it is their sum.
            loss = loss + term.weight * share * rank_count
        shares[term.name] = share.detach()
    return DividedLoss(loss, shares)
