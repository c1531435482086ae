"""The rounds of successive halving on one training: at which step how many candidates are left."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from limbeck.errors import RecipeError
from limbeck.search.halving import halving_rungs


@dataclass(frozen=True)
class LayerRung:
    """One round of a training.

    Args:
        candidates: How many are in it.
        end: The step after which they are scored, counted from the start of the training.
    """

    candidates: int
    end: int


def rungs_of_budget(candidates: int, total: int, factor: int) -> list[LayerRung]:
    """Divide a budget of all candidates' steps together; see `halving_rungs`.

    Raises:
        RecipeError: see `halving_rungs`.
    """
    rungs = halving_rungs(candidates, total, factor)
    ends = accumulate(rung.steps for rung in rungs)
    return [LayerRung(rung.candidates, end) for rung, end in zip(rungs, ends, strict=True)]


def rungs_of_training(candidates: int, steps: int, factor: int) -> list[LayerRung]:
    """Divide the steps of a training so that every round costs all its candidates together the same.

    Round i of n_i candidates gets a share of the steps in proportion to 1 / n_i, as successive halving has it; the
    last round ends with the training.

    Raises:
        RecipeError: for a factor below 2, or fewer steps than make every round one step long.
    """
    sizes = [rung.candidates for rung in halving_rungs(candidates, candidates * candidates, factor)]
    shares = list(accumulate(1 / size for size in sizes))
    ends = [round(steps * share / shares[-1]) for share in shares]
    if any(end <= before for before, end in pairwise([0, *ends])):
        raise RecipeError(
            f"{steps} steps are too few for {len(sizes)} rounds of {candidates} candidates; give more, or --no-halving."
        )
    return [LayerRung(size, end) for size, end in zip(sizes, ends, strict=True)]
