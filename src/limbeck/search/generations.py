"""Generations of mappings in a study: which are evaluated, and the rows of their table."""

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.core import studies
from limbeck.errors import RecipeError
from limbeck.search import genetic_sampler
from limbeck.search.mapping_space import Genome, MappingSpace, MappingTuple, to_binary
from limbeck.search.trial_log import DIVERGED
from limbeck.search.work import POLL_SECONDS, TRAINING_SECONDS, Ask, Outcome, Work, work_on
from limbeck.search.workers import BEAT_SECONDS

SCORE = "score."
"""Begins the user attribute of a trial that holds one score."""
SCORING_SECONDS = "scoring_seconds"
"""User attribute of a trial: the time of its scoring."""
PROBLEM = "problem"
"""User attribute of a trial: the reason why it has no score."""


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


class Generations(Work):
    """Evaluates mappings until so many generations are finished, and those that somebody queued in the study."""

    genetic: genetic_sampler.GeneticSampler
    generations: int
    batch: int

    def is_finished(self, study: Study) -> bool:
        """Return whether all generations are evaluated, and nothing waits that somebody queued."""
        return not _queued(study) and self.genetic.generation(study, self.generations).finished

    def propose(self, study: Study, ask: Ask) -> list[Candidate]:
        """Take open genomes of the present generation, and mappings that somebody queued in the study."""
        taken: list[Candidate] = []
        while len(taken) < self.batch:
            present = self.genetic.generation(study, self.generations)
            if not present.open and not _queued(study):
                break
            candidate = self._candidate(study, ask(), present)
            if candidate is not None:
                taken.append(candidate)
        return taken

    def _candidate(self, study: Study, trial: Trial, present: genetic_sampler.Generation) -> Candidate | None:
        """Return the candidate of a new trial; None where the trial has ended without an evaluation."""
        space = self.genetic.space
        mapping = genetic_sampler.suggest(trial, space)
        try:
            genome = space.encode(mapping)
        except RecipeError as problem:
            # Only a mapping that somebody queued can be outside of the space.
            trial.set_user_attr("refused", str(problem))
            study.tell(trial, state=TrialState.FAIL)
            return None

        trial.set_user_attr("genome", to_binary(genome, space.bits))
        is_of_generation = genome in present.genomes
        if is_of_generation:
            trial.set_user_attr("generation", present.number)
        trials = study.get_trials(deepcopy=False)
        known = genetic_sampler.read_genomes(trials, space).values.get(genome)
        if known is not None:
            study.tell(trial, known)
            return None
        is_queued = "fixed_params" in trials[trial.number].system_attrs
        if not is_of_generation and not is_queued:
            # Another worker took the last open genome in between.
            study.tell(trial, state=TrialState.PRUNED)
            return None
        return Candidate(mapping, trial)


def _queued(study: Study) -> bool:
    return bool(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))


class _Evaluated(Generations):
    """Evaluates mappings by a function."""

    def __init__(
        self, sampler: genetic_sampler.GeneticSampler, generations: int, batch: int, evaluate: Evaluate
    ) -> None:
        self.genetic = sampler
        self.generations = generations
        self.batch = batch
        self._evaluate = evaluate

    def train(self, candidates: Sequence[Candidate]) -> Iterable[Outcome]:
        """Return the fitness of each."""
        return map(Outcome, map(float, self._evaluate(candidates)))


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
    them. If it raises, or the program is interrupted, the trials that are left fail and are open again; the same
    goes, seen by the other workers or the next run, for a worker that is killed.

    Args:
        study: A study whose sampler is a `GeneticSampler`.
        evaluate: Evaluates up to `batch` mappings at once.
        generations: How many generations, at least 1.
        batch: How many mappings this worker takes at once, at least 1.
        beat_seconds: Seconds between signs of life.
        poll_seconds: Seconds between looks at what other workers hold.

    Raises:
        RecipeError: for no generation or an empty batch.
        TrainingError: if every genome of a generation was given up.
        TypeError: for a study of another sampler.
    """
    sampler = study.sampler
    if not isinstance(sampler, genetic_sampler.GeneticSampler):
        raise TypeError(f"run_search needs a study of a GeneticSampler, not of {sampler}")
    for name, value in (("generations", generations), ("batch", batch)):
        if value < 1:
            raise RecipeError(f"{name} {value} leaves nothing to do; give at least 1.")
    work = _Evaluated(sampler, generations, batch, evaluate)
    work_on(study, work, beat_seconds=beat_seconds, poll_seconds=poll_seconds)


GenerationRow = studies.Generation
"""One generation of a search, a row of ELM's table 5 (arXiv 2012.06153).

Its members are those that have a value; its size is also of those that have none (yet, or because they were given up).
A genome that came twice counts twice. `evaluated` are members that no earlier generation had, so that they cost an
evaluation, `best` is the first of equals, and `deviation` is divided by the number of members, not by one less.
"""


def generation_rows(study: Study, space: MappingSpace) -> list[GenerationRow]:
    """Return a row for every generation that has values, also for one that is under way."""
    attributes = study.user_attrs
    values = genetic_sampler.read_genomes(study.get_trials(deepcopy=False), space).values
    rows: list[GenerationRow] = []
    seen: set[Genome] = set()
    for number in itertools.count(1):
        genomes = genetic_sampler.recorded_generation(attributes, number)
        if genomes is None:
            break
        members = [genome for genome in genomes if genome in values]
        if members:
            best = max(members, key=values.__getitem__)
            fitnesses = [values[genome] for genome in members]
            row = GenerationRow(
                number=number,
                maximum=max(fitnesses),
                minimum=min(fitnesses),
                mean=statistics.fmean(fitnesses),
                deviation=statistics.pstdev(fitnesses),
                best=list(space.decode(best)),
                best_gene=to_binary(best, space.bits),
                size=len(genomes),
                evaluated=len({*members} - seen),
                members=[to_binary(genome, space.bits) for genome in members],
                breeding=attributes[genetic_sampler.generation_key(number)]["breeding"],
            )
            rows.append(row)
        seen.update(genomes)
    return rows


def candidates_of(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[studies.Candidate]:
    """Return every evaluated mapping, once, by fitness; of equals the first that was tried."""
    candidates = []
    for genome, trial in genetic_sampler.read_genomes(trials, space).done.items():
        notes = trial.user_attrs
        candidate = studies.Candidate(
            mapping=list(space.decode(genome)),
            gene=to_binary(genome, space.bits),
            fitness=cast("float", trial.value),
            scores={name.removeprefix(SCORE): score for name, score in notes.items() if name.startswith(SCORE)},
            generation=notes.get("generation"),
            trial=trial.number,
            training_seconds=notes.get(TRAINING_SECONDS),
            scoring_seconds=notes.get(SCORING_SECONDS),
        )
        candidates.append(candidate)
    return sorted(candidates, key=lambda candidate: -candidate.fitness)


def given_up(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[studies.GivenUp]:
    """Return the mappings that came to no fitness, each with its last problem."""
    done = genetic_sampler.read_genomes(trials, space).done
    problems: dict[Genome, str] = {}
    for trial in trials:
        genome = genetic_sampler.genome_of(trial, space)
        if trial.user_attrs.get(DIVERGED) and genome is not None:
            problems[genome] = trial.user_attrs.get(PROBLEM, "it reached no finite fitness")
    unfinished = []
    for genome, problem in problems.items():
        if genome not in done:
            mapping = list(space.decode(genome))
            unfinished.append(studies.GivenUp(mapping=mapping, gene=to_binary(genome, space.bits), problem=problem))
    return unfinished
