"""Layer mappings as the parameters of Optuna's trials, and what a study's trials say about genomes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.errors import RecipeError
from limbeck.search.mapping_space import Genome, MappingSpace, MappingTuple

DIVERGED = "diverged"
"""User attribute of a failed trial whose evaluation ended without a finite value: the genome's own fault."""


def parameter(layer: int) -> str:
    """Return the name of the parameter of a student layer, counted from 1."""
    return f"layer_{layer}"


def distributions(space: MappingSpace) -> dict[str, CategoricalDistribution]:
    """Return a parameter for each student layer: one of its teacher layers, 0 for none."""
    return {
        parameter(layer): CategoricalDistribution(sorted(choices.values()))
        for layer, choices in enumerate(space.choices, start=1)
    }


def suggest(trial: Trial, space: MappingSpace) -> MappingTuple:
    """Have the study's sampler propose a mapping, and write it into the trial."""
    layers = [trial.suggest_categorical(name, known.choices) for name, known in distributions(space).items()]
    return tuple(int(layer) for layer in layers if layer is not None)


def mapping_of(trial: FrozenTrial, space: MappingSpace) -> MappingTuple | None:
    """Return the mapping of a trial, or the one it waits with; none if it has no whole one yet."""
    known = trial.params or trial.system_attrs.get("fixed_params", {})
    names = [parameter(layer) for layer in range(1, space.student + 1)]
    return tuple(known[name] for name in names) if all(name in known for name in names) else None


def genome_of(trial: FrozenTrial, space: MappingSpace) -> Genome | None:
    """Return the genome of a trial; none if it has no whole mapping, or an illegal one."""
    mapping = mapping_of(trial, space)
    try:
        return None if mapping is None else space.encode(mapping)
    except RecipeError:
        return None


@dataclass(frozen=True)
class Ledger:
    """What a study's trials say about genomes.

    Args:
        values: The value of each evaluated genome: of its first completed trial.
        held: Genomes that a trial waits with or runs.
        diverged: How often each genome's evaluation ended without a finite value.
    """

    values: dict[Genome, float]
    held: frozenset[Genome]
    diverged: Counter[Genome]


def read_ledger(trials: Iterable[FrozenTrial], space: MappingSpace) -> Ledger:
    """Gather what a study's trials, in the order of their numbers, say about genomes."""
    values: dict[Genome, float] = {}
    held: set[Genome] = set()
    diverged: Counter[Genome] = Counter()
    for trial in trials:
        genome = genome_of(trial, space)
        if genome is None:
            continue
        if trial.state in (TrialState.RUNNING, TrialState.WAITING):
            held.add(genome)
        elif trial.state == TrialState.COMPLETE and trial.value is not None and math.isfinite(trial.value):
            values.setdefault(genome, trial.value)
        elif trial.state == TrialState.COMPLETE or trial.user_attrs.get(DIVERGED):
            diverged[genome] += 1
    return Ledger(values, frozenset(held), diverged)
