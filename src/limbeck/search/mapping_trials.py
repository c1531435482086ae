"""A layer mapping as the parameters of a trial: a categorical parameter for each student layer.

Its value is a teacher layer, or 0 for none.
"""

import math
from collections.abc import Iterable

from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.errors import RecipeError
from limbeck.search.mapping_space import Genome, MappingSpace, MappingTuple
from limbeck.search.trial_log import TrialLog, parameters_of, read_trials


def parameter(layer: int) -> str:
    """Return the name of the parameter of a student layer, counted from 1."""
    return f"layer_{layer}"


def distributions(space: MappingSpace) -> dict[str, CategoricalDistribution]:
    """Return the parameters of a trial by name, one for each student layer: a choice among its teacher layers."""
    by_parameter = {}
    for layer, choices in enumerate(space.choices, start=1):
        by_parameter[parameter(layer)] = CategoricalDistribution(sorted(choices.values()))
    return by_parameter


def suggest(trial: Trial, space: MappingSpace) -> MappingTuple:
    """Have the study's sampler propose a mapping, and write it into the trial."""
    mapping = []
    for name, distribution in distributions(space).items():
        layer = trial.suggest_categorical(name, distribution.choices)
        assert isinstance(layer, int)  # Every choice is a teacher layer, or 0.
        mapping.append(layer)
    return tuple(mapping)


def mapping_of(trial: FrozenTrial, space: MappingSpace) -> MappingTuple | None:
    """Return the mapping of a trial, also of a queued one; None if not all of its parameters are chosen yet."""
    values = parameters_of(trial)
    names = [parameter(layer) for layer in range(1, space.student + 1)]
    if not all(name in values for name in names):
        return None
    return tuple(values[name] for name in names)


def genome_of(trial: FrozenTrial, space: MappingSpace) -> Genome | None:
    """Return the genome of a trial; None if its mapping is not chosen yet, or is outside of the space."""
    mapping = mapping_of(trial, space)
    if mapping is None:
        return None
    try:
        return space.encode(mapping)
    except RecipeError:
        return None


def read_genomes(trials: Iterable[FrozenTrial], space: MappingSpace) -> TrialLog[Genome]:
    """Gather a study's trials by genome; a genome is settled when one of its trials has a finite value."""

    def settles(trial: FrozenTrial) -> bool:
        return trial.state == TrialState.COMPLETE and trial.value is not None and math.isfinite(trial.value)

    return read_trials(trials, lambda trial: genome_of(trial, space), settles)
