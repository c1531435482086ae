"""ELM's genetic algorithm as an Optuna sampler.

A *genome* is a layer mapping as codes (`mapping_space.py`), and a *generation* a list of genomes (`genetic.py`). Each
trial of the study evaluates one genome: its value is the genome's fitness.

The genomes of a generation depend on the seed, the generation's number and the values of the generations before it, and
on nothing else: not on the number of workers, nor on when they were started. When a generation is finished, the next is
bred by the worker that asks first, and is written into the study. Optuna's `BaseGASampler` does not fit: it counts a
generation by its completed trials, and here a generation also holds genomes whose value is known from an earlier one.

Optuna has no lock across processes, but numbers trials in the order in which they are made. So a trial chooses its
genome when all trials of lower number have chosen theirs, and no two choose the same.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from limbeck.errors import RecipeError, TrainingError
from limbeck.search.genetic import Scored, draw_new, next_generation
from limbeck.search.mapping_space import Genome, MappingSpace, from_binary, to_binary
from limbeck.search.mapping_trials import distributions, mapping_of, parameter, read_genomes
from limbeck.search.requests import GeneticSettings
from limbeck.search.trial_log import TrialLog

PATIENCE_SECONDS = 10.0
"""Longest wait of a trial for earlier ones to choose; they take milliseconds, unless their worker was killed."""
MOST_GENERATIONS_AT_ONCE = 100
"""Most generations that are bred for one trial, where all their genomes are evaluated already.

The trial then gets a random mapping that is new.
"""
_POLL_SECONDS = 0.02

# These begin the seeds of generations and of single trials, so that the two never draw the same numbers.
_GENERATION_STREAM = 0
_TRIAL_STREAM = 1


@dataclass(frozen=True)
class Generation:
    """A generation of a study.

    Args:
        number: Counted from 1.
        genomes: Its members; a genome may come more than once.
        open: Members that have no value yet, and that no running trial evaluates.
        finished: Whether every member has a value, or was given up since it never reached a finite one.
    """

    number: int
    genomes: tuple[Genome, ...]
    open: tuple[Genome, ...]
    finished: bool


def generation_key(number: int) -> str:
    """Return the study attribute that holds a generation."""
    return f"generation {number}"


def recorded_generation(attributes: Mapping[str, Any], number: int) -> tuple[Genome, ...] | None:
    """Read a generation from a study's user attributes; None if it has not been bred yet."""
    record = attributes.get(generation_key(number))
    if record is None:
        return None
    return tuple(from_binary(text) for text in record["genomes"])


class GeneticSampler(BaseSampler):
    """Samples layer mappings, generation by generation.

    Trials of the study have a categorical parameter for each student layer, see `limbeck.search.mapping_trials`. A
    genome whose trial failed, or was lost with its worker, is open again. A worker that asks while others evaluate all
    that is left of a generation gets a random mapping that is new; `limbeck.search.generations` does not ask then.

    Args:
        space: The mappings to search.
        settings: Size of a generation, its parents, rates of the operators.
        seed: Seed of the random numbers.
        attempts: Trials of a genome without a finite value after which it is given up. It then has no part in breeding.

    Raises:
        RecipeError: for a population larger than the space.
    """

    def __init__(self, space: MappingSpace, settings: GeneticSettings, seed: int = 0, attempts: int = 2) -> None:
        if settings.population > space.size:
            raise RecipeError(
                f"A population of {settings.population} is more than the {space.size} layer mappings that exist; "
                f"give at most {space.size}, or allow more teacher layers to be learned from."
            )
        self.space = space
        self.settings = settings
        self._seed = seed
        self._attempts = attempts
        # Numbers of trials whose worker was killed before it chose a mapping, so that nobody waits for them again.
        self._trials_not_waited_for: set[int] = set()

    @property
    def identity(self) -> dict[str, Any]:
        """The values that a study must have been made with to be continued by this sampler, as JSON holds them."""
        return {
            "space": self.space.description,
            "genetic settings": {**asdict(self.settings), "attempts": self._attempts},
            "seed": self._seed,
        }

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters of a mapping."""
        return dict(distributions(self.space))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose an open genome of the present generation, after all earlier trials have chosen.

        `search_space`, Optuna's own, is not needed: the sampler has the space of layer mappings.

        Raises:
            ValueError: for a study that minimises or has several objectives.
            TrainingError: if every genome of a generation was given up, so that there is nothing to breed from.
        """
        if study.directions != [StudyDirection.MAXIMIZE]:
            raise ValueError("a genetic search maximises one fitness; make its study with direction='maximize'")
        trials = self._wait_for_earlier_trials(study, trial)
        log = read_genomes(trials, self.space)
        generation = self.generation(study, log=log)
        # Without an open member other workers evaluate the rest of the generation, and the next one cannot be bred yet.
        genome = generation.open[0] if generation.open else self._draw_unseen(log, generation, trial.number)
        mapping = self.space.decode(genome)
        return {parameter(number): layer for number, layer in enumerate(mapping, start=1)}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: this sampler knows only the parameters of a mapping.

        Raises:
            ValueError: always.
        """
        names = ", ".join(distributions(self.space))
        raise ValueError(f"parameter '{param_name}' is not part of a layer mapping; its parameters are {names}")

    def generation(self, study: Study, last: int | None = None, log: TrialLog[Genome] | None = None) -> Generation:
        """Return the first generation that is not finished, and breed the generations up to it.

        A finished one is returned in three cases: it is the last that is asked for; it is empty, since the whole space
        has been tried; or this call has bred `MOST_GENERATIONS_AT_ONCE` generations.

        Args:
            study: The study.
            last: The number of the last generation that is asked for, which is returned even if it is finished; None
                goes on without an end.
            log: The study's trials by genome; None reads them.

        Raises:
            TrainingError: if every genome of a generation was given up, so that there is nothing to breed from.
        """
        if log is None:
            log = read_genomes(study.get_trials(deepcopy=False), self.space)
        attributes = study.user_attrs
        fitness_by_genome = log.values
        # Of each generation so far, the genomes that have a fitness. Each pass of the loop is for one generation.
        history: list[list[Scored]] = []
        generations_bred = 0
        while True:
            # Generations are numbered from 1. The study's attributes have those that a worker has bred before.
            number = len(history) + 1
            genomes = recorded_generation(attributes, number)
            if genomes is None:
                genomes = self._breed(study, number, history)
                generations_bred += 1
            generation = self._generation_of(number, genomes, log)
            if not generation.finished or number == last:
                return generation
            # With parents `best` a generation has new genomes alone. It is empty where the whole space has been tried.
            if not genomes or generations_bred == MOST_GENERATIONS_AT_ONCE:
                return generation

            # The next generation is bred from this one, which may be new: where all its genomes were tried before, it
            # is finished at once.
            scored = [(genome, fitness_by_genome[genome]) for genome in genomes if genome in fitness_by_genome]
            if not scored:
                raise TrainingError(
                    f"No mapping of generation {number} reached a finite fitness, so no next generation can be "
                    "made; lower --learning-rate or raise --population, and start a new study with --name."
                )
            history.append(scored)

    def _breed(self, study: Study, number: int, history: Sequence[Sequence[Scored]]) -> tuple[Genome, ...]:
        """Breed a generation, and write it into the study.

        Args:
            study: The study.
            number: The generation's number.
            history: Of each generation before its genomes that have a value.
        """
        generator = np.random.default_rng([self._seed, _GENERATION_STREAM, number])
        genomes, counts = next_generation(self.space, history, self.settings, generator)
        genomes_as_text = [to_binary(genome, self.space.bits) for genome in genomes]
        # Two workers may breed the same generation at once; both write the same.
        study.set_user_attr(generation_key(number), {"genomes": genomes_as_text, "breeding": asdict(counts)})
        return tuple(genomes)

    def _generation_of(self, number: int, genomes: tuple[Genome, ...], log: TrialLog[Genome]) -> Generation:
        """Return a generation of these genomes, with the open ones by the study's trials."""
        # Members that have no value and are not given up, whether or not a trial evaluates them now.
        unfinished = []
        for genome in dict.fromkeys(genomes):
            is_given_up = log.diverged[genome] >= self._attempts
            if genome not in log.done and not is_given_up:
                unfinished.append(genome)
        free = [genome for genome in unfinished if genome not in log.running]
        return Generation(number, genomes, open=tuple(free), finished=not unfinished)

    def _draw_unseen(self, log: TrialLog[Genome], generation: Generation, trial_number: int) -> Genome:
        """Draw a genome that is new to the study; return one that is known where the whole space has been tried."""
        generator = np.random.default_rng([self._seed, _TRIAL_STREAM, trial_number])
        seen = {*log.done, *log.running, *generation.genomes}
        new_genomes = draw_new(self.space, 1, generator, seen)
        if new_genomes:
            return new_genomes[0]
        return next(iter(seen))

    def _wait_for_earlier_trials(self, study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """Wait until all trials of lower number have chosen their mapping, and return the study's trials.

        A trial that has not chosen after `PATIENCE_SECONDS` has lost its worker, and is never waited for again.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            # Optuna lists trials in the order of their numbers, from 0.
            trials = study.get_trials(deepcopy=False)
            undecided = set()
            for earlier in trials[: trial.number]:
                if earlier.state == TrialState.RUNNING and mapping_of(earlier, self.space) is None:
                    undecided.add(earlier.number)
            if time.monotonic() > deadline:
                self._trials_not_waited_for |= undecided
            if undecided <= self._trials_not_waited_for:
                return trials
            time.sleep(_POLL_SECONDS)
