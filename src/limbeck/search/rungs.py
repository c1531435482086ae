"""Rounds of successive halving: many candidates train a few steps, the better ones train more.

Source: Jamieson and Talwalkar 2016 (arXiv 1502.07943), algorithm 1, which calls a round a rung.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeVar

from limbeck.errors import RecipeError

Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True)
class Rung:
    """A round in a budget of steps.

    Args:
        candidates: Number of candidates that train in it.
        steps: Number of further steps that each of them trains.
    """

    candidates: int
    steps: int


class Round(NamedTuple):
    """A round in one training of all candidates.

    Args:
        candidates: Number of candidates that train in it.
        end: The step after which it ends, counted from the beginning of the training.
    """

    candidates: int
    end: int


def halving_rungs(candidates: int, steps: int, factor: int = 2) -> list[Rung]:
    """Divide a budget of steps evenly over rounds that each keep a share of the candidates.

    Round 0 has all n candidates, round i has n_i = floor(n_(i-1) / factor), as long as that is more than one. With r
    rounds each candidate of round i trains floor(steps / (n_i r)) steps more. The best of the last round is the choice;
    it gets no round alone, as it does in the paper, since that could change nothing.

    Args:
        candidates: Number of candidates at the start, n.
        steps: Steps of all candidates and rounds together.
        factor: One in this many candidates goes on, at least 2.

    Raises:
        RecipeError: for fewer than one candidate, a factor below 2, or a budget that leaves a candidate no step.
    """
    if candidates < 1:
        raise RecipeError(f"{candidates} candidates leave nothing to train; give at least 1.")
    sizes = _sizes(candidates, factor)
    rungs = [Rung(size, steps // (size * len(sizes))) for size in sizes]
    if rungs[0].steps < 1:
        raise RecipeError(
            f"{steps} steps for {candidates} candidates in {len(sizes)} rounds would leave some candidates without "
            f"a step; give at least {candidates * len(sizes)}."
        )
    return rungs


def rounds_of_rungs(rungs: list[Rung]) -> list[Round]:
    """Return the rounds of a training that has the steps of these rungs one after another."""
    # Running sums of the steps.
    ends = accumulate(rung.steps for rung in rungs)
    return [Round(rung.candidates, end) for rung, end in zip(rungs, ends, strict=True)]


def rounds_of_training(candidates: int, steps: int, factor: int) -> list[Round]:
    """Divide the steps of a training into rounds that cost the same: fewer steps while more candidates train.

    As in successive halving, the steps of round i, in which n_i candidates train, are in proportion to 1 / n_i. The
    last round ends with the training.

    Args:
        candidates: Number of candidates at the start.
        steps: Steps of a candidate that trains to the end.
        factor: One in this many candidates goes on, at least 2.

    Raises:
        RecipeError: for a factor below 2, or fewer steps than make every round one step long.
    """
    sizes = _sizes(candidates, factor)
    # Running sums of 1 / n_i, which are in proportion to the ends of the rounds.
    running_sums = list(accumulate(1 / size for size in sizes))
    rounds = []
    last_end = 0
    for size, running_sum in zip(sizes, running_sums, strict=True):
        end = round(steps * running_sum / running_sums[-1])
        if end <= last_end:
            raise RecipeError(
                f"{steps} steps are too few for {len(sizes)} rounds of {candidates} candidates; give more steps, "
                "or --no-halving."
            )
        rounds.append(Round(size, end))
        last_end = end
    return rounds


def survivors(losses: Mapping[Candidate, float], count: int) -> list[Candidate]:
    """Return the `count` candidates of lowest loss, best first; a loss that is not a number is the worst.

    Candidates of equal loss keep the order they are given in.
    """

    def sort_key(candidate: Candidate) -> float:
        loss = losses[candidate]
        return math.inf if math.isnan(loss) else loss

    return sorted(losses, key=sort_key)[:count]


def _sizes(candidates: int, factor: int) -> list[int]:
    """Return the number of candidates of each round, see `halving_rungs`.

    Raises:
        RecipeError: for a factor below 2.
    """
    if factor < 2:
        raise RecipeError(f"A halving factor of {factor} would drop no candidate; give --halving 2 or more.")
    sizes = [candidates]
    while sizes[-1] // factor > 1:
        sizes.append(sizes[-1] // factor)
    return sizes
