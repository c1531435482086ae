"""Optuna's samplers by name, each drawing from the seed and the trial's number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.errors import RecipeError, suggestion

MakeSampler: TypeAlias = Callable[[int], BaseSampler]

STARTUP = 8
"""Trials at random before a model of the rewards is fitted."""
SAMPLERS: dict[str, MakeSampler] = {
    "tpe": lambda seed: TPESampler(seed=seed, n_startup_trials=STARTUP),
    "random": lambda seed: RandomSampler(seed=seed),
    "nsga2": lambda seed: NSGAIISampler(seed=seed, population_size=STARTUP),
    "gp": lambda seed: GPSampler(seed=seed, n_startup_trials=STARTUP),
}
"""Those that choose among listed values; CMA-ES and quasi-Monte Carlo need ranges."""


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Return one of `SAMPLERS`, by name.

    Raises:
        RecipeError: for another name.
    """
    if name not in SAMPLERS:
        raise RecipeError(f"Unknown sampler '{name}'.{suggestion(name, SAMPLERS)}")
    return SeededByTrial(SAMPLERS[name], seed)


class SeededByTrial(BaseSampler):
    """A sampler that is seeded anew for every trial, by the trial's number.

    What a trial proposes depends on the seed, its number and the trials before it, not on which worker asks. With one
    seed for all, workers that start together would all propose the same.

    Args:
        make: Makes the sampler from a seed.
        seed: Where chance comes from.
    """

    def __init__(self, make: MakeSampler, seed: int) -> None:
        self._make = make
        self._seed = seed
        self._sampler = make(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Make the sampler of this trial."""
        # A prime, so that the trials of neighbouring seeds do not draw alike.
        self._sampler = self._make((1_000_003 * self._seed + trial.number) % 2**32)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """As the sampler of this trial does."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler of this trial does."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As the sampler of this trial does."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """As the sampler of the last trial does."""
        self._sampler.after_trial(study, trial, state, values)
