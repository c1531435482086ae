"""The loop of one worker: take what is open, evaluate it, tell; until the generations that were asked for are done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import Trial, TrialState

from limbeck.errors import RecipeError
from limbeck.search.genetic_sampler import GeneticSampler
from limbeck.search.genome import to_binary
from limbeck.search.mapping_space import MappingTuple
from limbeck.search.trials import DIVERGED, read_ledger, suggest
from limbeck.search.workers import BEAT_SECONDS, WORKER, LostTrials, SignOfLife

POLL_SECONDS = 1.0


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
    if not isinstance(sampler, GeneticSampler):
        raise TypeError(f"run_search needs a study of a GeneticSampler, not of {sampler}")
    for name, value in (("generations", generations), ("batch", batch)):
        if value < 1:
            raise RecipeError(f"{name} {value} leaves nothing to do; give at least 1.")
    lost = LostTrials(study)
    with SignOfLife(study, beat_seconds) as life:
        while True:
            lost.fail(life.worker)
            candidates = _take(study, sampler, life.worker, generations, batch)
            if candidates:
                _evaluate(study, candidates, evaluate)
            elif sampler.generation(study, generations).finished:
                return
            else:
                time.sleep(poll_seconds)


def _take(study: Study, sampler: GeneticSampler, worker: str, generations: int, batch: int) -> list[Candidate]:
    """Take open genomes of the present generation, and mappings that somebody queued in the study."""
    taken: list[Candidate] = []
    while len(taken) < batch:
        present = sampler.generation(study, generations)
        queued = bool(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))
        if not present.open and not queued:
            break
        trial = study.ask()
        trial.set_user_attr(WORKER, worker)
        mapping = suggest(trial, sampler.space)
        try:
            genome = sampler.space.encode(mapping)
        except RecipeError as problem:  # only a queued one
            trial.set_user_attr("refused", str(problem))
            study.tell(trial, state=TrialState.FAIL)
            continue
        trial.set_user_attr("genome", to_binary(genome, sampler.space.bits))
        if genome in present.genomes:
            trial.set_user_attr("generation", present.number)
        trials = study.get_trials(deepcopy=False)
        known = read_ledger(trials, sampler.space).values.get(genome)
        if known is not None:
            study.tell(trial, known)
        elif genome in present.genomes or "fixed_params" in trials[trial.number].system_attrs:
            taken.append(Candidate(mapping, trial))
        else:
            # Another worker took the last open genome in between.
            study.tell(trial, state=TrialState.PRUNED)
    return taken


def _evaluate(study: Study, candidates: Sequence[Candidate], evaluate: Evaluate) -> None:
    told = 0
    try:
        for candidate, fitness in zip(candidates, evaluate(candidates), strict=True):
            _tell(study, candidate.trial, float(fitness))
            told += 1
    finally:
        for candidate in candidates[told:]:
            study.tell(candidate.trial, state=TrialState.FAIL, skip_if_finished=True)


def _tell(study: Study, trial: Trial, fitness: float) -> None:
    try:
        if math.isfinite(fitness):
            study.tell(trial, fitness, skip_if_finished=True)
        else:
            trial.set_user_attr(DIVERGED, True)
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
    except UpdateFinishedTrialError:
        # This worker was taken for dead, and the genome went to another.
        return
