"""The work of a genetic search: a worker takes open mappings of the present generation and evaluates them.

A *genome* is a mapping as codes, see `mapping_space.py`; it is *open* while it has no value and no worker evaluates it.
Besides the generations, a user may *queue* mappings in the study (`Study.enqueue_trial`), which are evaluated too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from optuna.study import Study
from optuna.trial import Trial, TrialState

from limbeck.errors import RecipeError
from limbeck.search.genetic_sampler import Generation, GeneticSampler
from limbeck.search.mapping_space import MappingTuple, to_binary
from limbeck.search.mapping_trials import read_genomes, suggest
from limbeck.search.work import POLL_SECONDS, Ask, Outcome, Work, work_on
from limbeck.search.worker_signs import BEAT_SECONDS

# User attributes of a trial.
GENERATION = "generation"
"""The number of the generation that its mapping belongs to; missing for a queued mapping that belongs to none."""
GENOME = "genome"
"""Its mapping as a genome, as the paper writes it: `000-000-010-101`."""
REFUSED = "refused"
"""The reason why its mapping is not evaluated."""


@dataclass(frozen=True)
class Candidate:
    """A mapping to evaluate.

    Args:
        mapping: One teacher layer for each student layer, 0 for none.
        trial: Its trial, for user attributes such as the score of each proxy task.
    """

    mapping: MappingTuple
    trial: Trial


Evaluate: TypeAlias = Callable[[Sequence[Candidate]], Iterable[float]]
"""Returns or yields the fitness of each candidate in order; one that is not finite marks a run that diverged."""


def run_search(
    study: Study,
    evaluate: Evaluate,
    *,
    generations: int,
    batch: int,
    beat_seconds: float = BEAT_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Work on a study until its generations are evaluated, beside any number of other workers.

    A study that is finished goes on where more generations are asked for. Values are kept as soon as `evaluate` yields
    them. If it raises, or the program is interrupted, the trials that are left fail, and their mappings are open again.
    If the program is killed, the other workers or the next run fail its trials.

    Args:
        study: A study whose sampler is a `GeneticSampler`.
        evaluate: Evaluates up to `batch` mappings at once.
        generations: Number of generations, at least 1.
        batch: Number of mappings that this worker takes at once, at least 1.
        beat_seconds: Seconds between the signs of life that this worker gives the others.
        poll_seconds: Seconds between looks at what other workers evaluate, while there is nothing to take.

    Raises:
        RecipeError: for no generation or an empty batch.
        TrainingError: if every genome of a generation was given up.
        TypeError: for a study of another sampler.
    """
    sampler = study.sampler
    if not isinstance(sampler, GeneticSampler):
        raise TypeError(f"run_search needs a study with a GeneticSampler, but the study's sampler is {sampler}")
    for name, value in (("generations", generations), ("batch", batch)):
        if value < 1:
            raise RecipeError(f"{name} {value} would do nothing; give at least 1.")
    work = _EvaluatedGenerations(sampler, generations, batch, evaluate)
    work_on(study, work, beat_seconds=beat_seconds, poll_seconds=poll_seconds)


class Generations(Work):
    """Evaluates generations of mappings, and mappings that are queued in the study.

    Attributes:
        genetic: Proposes mappings, generation by generation.
        generations: Number of generations.
        batch: Number of mappings that this worker takes at once.
    """

    genetic: GeneticSampler
    generations: int
    batch: int

    def is_finished(self, study: Study) -> bool:
        """Return whether all generations are evaluated, and no queued mapping waits."""
        if _has_queued(study):
            return False
        return self.genetic.generation(study, self.generations).finished

    def propose(self, study: Study, ask: Ask) -> list[Candidate]:
        """Take mappings to evaluate: those queued in the study, then those of the generation that nobody has taken."""
        candidates: list[Candidate] = []
        while len(candidates) < self.batch:
            # Read anew for every candidate, since this worker and others take its open genomes.
            generation = self.genetic.generation(study, self.generations)
            if not generation.open and not _has_queued(study):
                break
            candidate = self._candidate_of(study, ask(), generation)
            if candidate is not None:
                candidates.append(candidate)
        return candidates

    def _candidate_of(self, study: Study, trial: Trial, generation: Generation) -> Candidate | None:
        """Return the candidate of a new trial; None for a trial that needs no evaluation, and is ended here."""
        space = self.genetic.space
        # Optuna gives the trial a mapping that is queued in the study. Without any, the sampler proposes an open genome
        # of the generation.
        mapping = suggest(trial, space)
        try:
            genome = space.encode(mapping)
        except RecipeError as error:
            # Only a queued mapping can be outside of the space.
            trial.set_user_attr(REFUSED, str(error))
            study.tell(trial, state=TrialState.FAIL)
            return None
        trial.set_user_attr(GENOME, to_binary(genome, space.bits))
        is_member = genome in generation.genomes
        if is_member:
            trial.set_user_attr(GENERATION, generation.number)

        # A mapping that was evaluated before gets the same value without an evaluation.
        trials = study.get_trials(deepcopy=False)
        earlier_value = read_genomes(trials, space).values.get(genome)
        if earlier_value is not None:
            study.tell(trial, earlier_value)
            return None

        # Optuna keeps the mapping of a queued trial as `fixed_params`.
        is_queued = "fixed_params" in trials[trial.number].system_attrs
        if not is_member and not is_queued:
            # Another worker has just taken the last open genome, so that the sampler proposed a random mapping, which
            # belongs to no generation.
            study.tell(trial, state=TrialState.PRUNED)
            return None
        return Candidate(mapping, trial)


class _EvaluatedGenerations(Generations):
    """Evaluates mappings by a function."""

    def __init__(self, sampler: GeneticSampler, generations: int, batch: int, evaluate: Evaluate) -> None:
        self.genetic = sampler
        self.generations = generations
        self.batch = batch
        self._evaluate = evaluate

    def train(self, candidates: Sequence[Candidate]) -> Iterable[Outcome]:
        """Yield the fitness of each as its outcome."""
        for fitness in self._evaluate(candidates):
            yield Outcome(float(fitness))


def _has_queued(study: Study) -> bool:
    """Whether a queued mapping waits in the study."""
    return bool(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))
