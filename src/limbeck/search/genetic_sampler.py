"""ELM's genetic algorithm as an Optuna sampler; a layer mapping as the parameters of a trial.

Which genomes make a generation depends on the seed, the generation's number and the values of the generations before
it, on nothing else: not on how many workers evaluate it, nor on when they were started. A generation that is due is
bred by whichever worker asks first and written into the study. Optuna's `BaseGASampler` does not fit: it counts a
generation by its completed trials, and here a generation also holds genomes whose value is known from an earlier one.

Optuna has no lock across processes, but numbers trials in the order in which they are made. So a trial chooses its
genome once all trials of lower number have chosen theirs, and no two choose the same.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.errors import RecipeError, TrainingError
from limbeck.search.genetic import Scored, draw_new, next_generation
from limbeck.search.mapping_space import Genome, MappingSpace, MappingTuple, from_binary, to_binary
from limbeck.search.requests import GeneticSettings
from limbeck.search.trial_log import TrialLog, read_trials

PATIENCE_SECONDS = 10.0
"""How long a trial waits for earlier ones to choose; they take milliseconds, unless their worker was killed."""
MOST_GENERATIONS_AT_ONCE = 100
"""So many generations that hold nothing new are bred for one trial, before it gets a random mapping that is new."""
# Chance for generations and for single trials must not come from the same stream.
_GENERATION_STREAM, _TRIAL_STREAM = 0, 1


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


def read_genomes(trials: Iterable[FrozenTrial], space: MappingSpace) -> TrialLog[Genome]:
    """Gather a study's trials by genome; one is done when a trial of it has a finite value."""

    def settles(trial: FrozenTrial) -> bool:
        return trial.state == TrialState.COMPLETE and trial.value is not None and math.isfinite(trial.value)

    return read_trials(trials, lambda trial: genome_of(trial, space), settles)


@dataclass(frozen=True)
class Generation:
    """A generation of a study.

    Args:
        number: Counted from 1.
        genomes: Its members; a genome may come more than once.
        open: Members that are to be evaluated and that no trial holds.
        finished: Whether every member has a value, or was given up.
    """

    number: int
    genomes: tuple[Genome, ...]
    open: tuple[Genome, ...]
    finished: bool


def generation_key(number: int) -> str:
    """Return the study attribute that holds a generation."""
    return f"generation {number}"


class GeneticSampler(BaseSampler):
    """Samples layer mappings, generation by generation.

    Trials of the study have a categorical parameter for each student layer (see `distributions`). A genome
    whose trial failed, or was lost with its worker, is open again. Where a worker asks while others hold all that is
    left of a generation, it gets a random mapping that is new; `limbeck.search.mapping` does not ask then.

    Args:
        space: The mappings to search.
        settings: Size of a generation, its parents, rates of the operators.
        seed: Where chance comes from.
        attempts: How often a genome may end without a finite value before it is given up. It then has no part in
            breeding.

    Raises:
        RecipeError: for a population larger than the space.
    """

    def __init__(self, space: MappingSpace, settings: GeneticSettings, seed: int = 0, attempts: int = 2) -> None:
        if settings.population > space.size:
            raise RecipeError(
                f"A population of {settings.population} is more than the {space.size} layer mappings there are; give "
                f"at most {space.size}, or allow more teacher layers to be learned from."
            )
        self.space, self.settings, self._seed, self._attempts = space, settings, seed, attempts
        self._given_up_waiting: set[int] = set()

    @property
    def identity(self) -> dict[str, Any]:
        """What a study must have been made with to be continued by this sampler, as JSON holds it."""
        return {
            "space": self.space.description,
            "genetic settings": asdict(self.settings) | {"attempts": self._attempts},
            "seed": self._seed,
        }

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters of a mapping."""
        return dict(distributions(self.space))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose an open genome of the present generation, after all earlier trials have chosen.

        Raises:
            ValueError: for a study that minimises or has several objectives.
            TrainingError: if every genome of a generation was given up, so that there is nothing to breed from.
        """
        if study.directions != [StudyDirection.MAXIMIZE]:
            raise ValueError("a genetic search maximises one fitness; make its study with direction='maximize'")
        trials = self._after_earlier_trials(study, trial)
        log = read_genomes(trials, self.space)
        generation = self.generation(study, log=log)
        genome = generation.open[0] if generation.open else self._unseen(log, generation, trial.number)
        return {parameter(m): layer for m, layer in enumerate(self.space.decode(genome), start=1)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: this sampler knows only the parameters of a mapping.

        Raises:
            ValueError: always.
        """
        known = ", ".join(distributions(self.space))
        raise ValueError(f"parameter '{param_name}' is not part of a layer mapping; its parameters are {known}")

    def generation(self, study: Study, last: int | None = None, log: TrialLog[Genome] | None = None) -> Generation:
        """Return the first generation that is not finished, or the last one, breeding what is due.

        Args:
            study: The study.
            last: The number of generations that is asked for, at least 1; None for no end.
            log: All its trials, where they have been read.

        Raises:
            TrainingError: if every genome of a generation was given up, so that there is nothing to breed from.
        """
        log = log if log is not None else read_genomes(study.get_trials(deepcopy=False), self.space)
        attributes, values = study.user_attrs, log.values
        history: list[list[Scored]] = []
        bred = 0
        while True:
            number = len(history) + 1
            genomes = recorded_generation(attributes, number)
            if genomes is None:
                genomes = self._breed(study, number, history)
                bred += 1
            generation = self._progress(number, genomes, log)
            # Nothing new is left where a generation of new genomes comes out empty.
            if not generation.finished or number == last or not genomes or bred == MOST_GENERATIONS_AT_ONCE:
                return generation
            history.append([(genome, values[genome]) for genome in genomes if genome in values])
            if not history[-1]:
                raise TrainingError(
                    f"No mapping of generation {number} reached a finite fitness, so there is nothing to breed "
                    "from; lower the learning rate of the proxy training or raise the population, and name a new study."
                )

    def _breed(self, study: Study, number: int, history: Sequence[Sequence[Scored]]) -> tuple[Genome, ...]:
        random = np.random.default_rng([self._seed, _GENERATION_STREAM, number])
        genomes, counts = next_generation(self.space, history, self.settings, random)
        written = [to_binary(genome, self.space.bits) for genome in genomes]
        # Two workers may both get here; they write the same.
        study.set_user_attr(generation_key(number), {"genomes": written, "breeding": asdict(counts)})
        return tuple(genomes)

    def _progress(self, number: int, genomes: tuple[Genome, ...], log: TrialLog[Genome]) -> Generation:
        wanted = [
            genome
            for genome in dict.fromkeys(genomes)
            if genome not in log.done and log.diverged[genome] < self._attempts
        ]
        free = tuple(genome for genome in wanted if genome not in log.running)
        return Generation(number, genomes, free, finished=not wanted)

    def _unseen(self, log: TrialLog[Genome], generation: Generation, trial_number: int) -> Genome:
        random = np.random.default_rng([self._seed, _TRIAL_STREAM, trial_number])
        known = {*log.done, *log.running, *generation.genomes}
        drawn = draw_new(self.space, 1, random, known)
        return drawn[0] if drawn else next(iter(known))

    def _after_earlier_trials(self, study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
        waited_until = time.monotonic() + PATIENCE_SECONDS
        while True:
            trials = study.get_trials(deepcopy=False)
            choosing = {
                other.number
                for other in trials[: trial.number]
                if other.state == TrialState.RUNNING and mapping_of(other, self.space) is None
            }
            if time.monotonic() > waited_until:
                self._given_up_waiting |= choosing
            if choosing <= self._given_up_waiting:
                return trials
            time.sleep(0.02)


def recorded_generation(attributes: Mapping[str, Any], number: int) -> tuple[Genome, ...] | None:
    """Read a generation from a study's user attributes; none if it has not been bred yet."""
    record = attributes.get(generation_key(number))
    return None if record is None else tuple(from_binary(text) for text in record["genomes"])
