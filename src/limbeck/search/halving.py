"""Successive halving: many candidates for a few steps, the better ones for more.

Source: Jamieson and Talwalkar 2016 (arXiv 1502.07943), algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from limbeck.errors import RecipeError

Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True)
class Rung:
    """One round: so many candidates train so many further steps each."""

    candidates: int
    steps: int


def halving_rungs(candidates: int, steps: int, factor: int = 2) -> list[Rung]:
    """Divide a budget of steps evenly over rounds that each keep a share of the candidates.

    Round 0 has all n candidates, round i has n_i = floor(n_(i-1) / factor), as long as that is more than one. With r
    rounds each candidate of round i trains floor(steps / (n_i r)) steps more. The best of the last round is the choice;
    it gets no round alone, as it does in the paper, since that could change nothing.

    Args:
        candidates: How many start, n.
        steps: Steps of all candidates and rounds together.
        factor: Of how many candidates one goes on, at least 2.

    Raises:
        RecipeError: for fewer than one candidate, a factor below 2, or a budget that leaves a candidate no step.
    """
    if candidates < 1:
        raise RecipeError(f"{candidates} candidates leave nothing to choose from; give at least 1.")
    if factor < 2:
        raise RecipeError(f"A halving factor of {factor} drops no candidate; give at least 2.")
    sizes = [candidates]
    while sizes[-1] // factor > 1:
        sizes.append(sizes[-1] // factor)
    rungs = [Rung(size, steps // (size * len(sizes))) for size in sizes]
    if rungs[0].steps < 1:
        raise RecipeError(
            f"{steps} steps for {candidates} candidates in {len(sizes)} rounds leave some without a step; give at "
            f"least {candidates * len(sizes)}."
        )
    return rungs


def survivors(losses: Mapping[Candidate, float], count: int) -> list[Candidate]:
    """Return the `count` candidates of lowest loss, best first; a loss that is not a number is the worst.

    Candidates of equal loss keep the order they are given in.
    """
    return sorted(losses, key=lambda one: math.inf if math.isnan(losses[one]) else losses[one])[:count]
