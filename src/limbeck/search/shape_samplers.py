"""The samplers that choose among the shapes of a search.

A *sampler* of Optuna proposes the parameters of the next trial, here a shape, by the trials so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.search.kd_nas import ControllerSampler
from limbeck.search.shape_space import ShapeSpace

MakeSampler: TypeAlias = Callable[[int], BaseSampler]
"""Makes a sampler from a seed."""
STARTUP = 8
"""Trials at random before a model of the rewards is fitted."""
_SEED_STEP = 1_000_003
"""Distance between the seeds of two studies, far above the number of trials, so that no two trials have one seed."""


def make_sampler(name: str, seed: int, space: ShapeSpace, episode: int | None = None) -> BaseSampler:
    """Return a sampler by name.

    Args:
        name: One of `limbeck.search.requests.SAMPLERS`.
        seed: Seed of the random numbers.
        space: The shapes.
        episode: Shapes in an episode of `kd_nas`; None for 1.
    """
    shapes_an_episode = 1 if episode is None else episode

    def make(trial_seed: int) -> BaseSampler:
        """Make the sampler of one trial."""
        # Optuna's samplers that can choose among listed values; CMA-ES and quasi-Monte Carlo need ranges.
        match name:
            case "tpe":
                return TPESampler(seed=trial_seed, n_startup_trials=STARTUP)
            case "random":
                return RandomSampler(seed=trial_seed)
            case "nsga2":
                return NSGAIISampler(seed=trial_seed, population_size=STARTUP)
            case "gp":
                return GPSampler(seed=trial_seed, n_startup_trials=STARTUP)
            case "kd_nas":
                return ControllerSampler(trial_seed, asdict(space.sizes), space.shapes, shapes_an_episode)
        raise ValueError(f"there is no sampler '{name}'")

    return SeededByTrial(make, seed)


class SeededByTrial(BaseSampler):
    """A sampler that is seeded anew for every trial, by the trial's number.

    What a trial proposes depends on the seed, its number and the trials before it, not on which worker asks. With one
    seed for all, workers that start together would all propose the same.

    Args:
        make: Makes the sampler from a seed.
        seed: Seed of the random numbers.
    """

    def __init__(self, make: MakeSampler, seed: int) -> None:
        self._make = make
        self._seed = seed
        self._sampler = make(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Make the sampler of this trial."""
        trial_seed = (_SEED_STEP * self._seed + trial.number) % 2**32
        self._sampler = self._make(trial_seed)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Ask the sampler of this trial."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Ask the sampler of this trial."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Ask the sampler of this trial."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the sampler of this worker's last trial."""
        self._sampler.after_trial(study, trial, state, values)
