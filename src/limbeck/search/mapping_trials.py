"""Candidates of a mapping search: the recipe that is searched for, with another layer mapping in it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import Trial, TrialState
from rich.console import Console

from limbeck.errors import Interrupted, LimbeckError, RecipeError, TrainingError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search.genetic_sampler import GeneticSampler
from limbeck.search.mapping_space import NONE, MappingSpace, MappingTuple, to_binary
from limbeck.search.requests import check_text_only
from limbeck.search.scores import ProxyScores, fitness_of
from limbeck.search.trials import DIVERGED, read_ledger, suggest
from limbeck.search.workers import BEAT_SECONDS, WORKER, LostTrials, SignOfLife
from limbeck.training.proxy import Proxy

OPTION = "mapping"


def methods_with_mapping() -> list[str]:
    """Return the methods that take a layer mapping."""
    return [name for name, method in METHODS.items() if OPTION in method.options.model_fields]


def mapped_stages(recipe: Recipe) -> list[int]:
    """Return the stages whose method takes a layer mapping, counted from 0."""
    known = methods_with_mapping()
    return [index for index, stage in enumerate(recipe.stages) if stage.method["name"] in known]


def with_mapping(recipe: Recipe, mapping: MappingTuple) -> Recipe:
    """Return a recipe whose stages learn by a mapping, wherever they take one; nothing else is changed."""
    return load_recipe(recipe, [f"stages.{index}.method.{OPTION}={list(mapping)}" for index in mapped_stages(recipe)])


def plan_candidate(recipe: Recipe, mapping: MappingTuple) -> RunPlan:
    """Plan the run of a mapping.

    Raises:
        RecipeError: if the recipe cannot be trained by it.
    """
    try:
        return plan_run(with_mapping(recipe, mapping))
    except LimbeckError as problem:
        raise RecipeError(f"The search may try mapping {list(mapping)}, which this recipe cannot: {problem}") from None


def check_searchable(plan: RunPlan, space: MappingSpace) -> None:
    """Refuse a recipe whose layer mapping cannot be searched, before any text is read.

    Args:
        plan: Of the recipe.
        space: The mappings to search.

    Raises:
        RecipeError: for a recipe without stages, one that learns from labelled rows, one whose methods take no layer
            mapping, one that cannot be trained by the sparsest mapping, or a space of one mapping.
    """
    check_text_only(plan)
    if not mapped_stages(plan.recipe):
        used = " and ".join(dict.fromkeys(f"'{stage.method['name']}'" for stage in plan.recipe.stages))
        raise RecipeError(f"{used} takes no layer mapping; methods that do are {', '.join(methods_with_mapping())}.")
    if space.size == 1:
        only = space.decode(next(iter(space)))
        raise RecipeError(f"{list(only)} is the only layer mapping there is, so there is nothing to search.")
    lowest = min(space.choices[-1].values())
    plan_candidate(plan.recipe, (NONE,) * (space.student - 1) + (lowest,))


# The loop of one worker: take what is open, evaluate it, tell; until the generations that were asked for are done.


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


# The fitness of layer mappings: train their students side by side, score each, take the mean.


SCORE = "score."
"""Begins the user attribute of a trial that holds one score."""
TRAINING_SECONDS, SCORING_SECONDS, PROBLEM = "training_seconds", "scoring_seconds", "problem"
"""User attributes of a trial: its share of the training of all that were trained with it, and what its scores took."""


class MappingFitness:
    """Evaluates layer mappings; what `run_search` calls.

    Every score is kept as a user attribute of the trial. A student that diverged, or that cannot be scored, has no
    fitness (NaN), and the others of its batch keep theirs.

    Args:
        proxy: Trains the candidates of a batch under one teacher.
        scores: Scores their students.
        recipe: That candidates are variants of.
        console: Where progress goes.
    """

    def __init__(self, proxy: Proxy, scores: ProxyScores, recipe: Recipe, console: Console) -> None:
        self._proxy = proxy
        self._scores = scores
        self._recipe = recipe
        self._console = console

    def __call__(self, candidates: Sequence[Candidate]) -> Iterator[float]:
        """Yield the fitness of each candidate as soon as it is known, in order."""
        plans = [plan_candidate(self._recipe, candidate.mapping) for candidate in candidates]
        numbers = sorted({n for c in candidates if (n := c.trial.user_attrs.get("generation")) is not None})
        which = f"Generation {', '.join(map(str, numbers))}" if numbers else "Queued in the study"
        self._say(f"{which}: {len(candidates)} to evaluate")
        started = time.monotonic()
        try:
            trained = self._proxy.train(plans)
        except torch.OutOfMemoryError:
            raise TrainingError(
                "The device is out of memory; train fewer candidates at once with --batch, or lower --batch-size."
            ) from None
        seconds = (time.monotonic() - started) / len(candidates)
        for candidate, plan, found in zip(candidates, plans, trained, strict=True):
            candidate.trial.set_user_attr(TRAINING_SECONDS, round(seconds, 1))
            if found.diverged:
                yield self._give_up(candidate, "its training diverged")
                continue
            started = time.monotonic()
            try:
                scores = self._scores.measure(found.student, plan, file_name(candidate.mapping))
            except Interrupted:
                raise
            except LimbeckError as problem:
                yield self._give_up(candidate, str(problem))
                continue
            fitness = fitness_of(scores)
            if math.isnan(fitness):
                yield self._give_up(candidate, "a score is no number: its student gives every text the same vector")
                continue
            candidate.trial.set_user_attr(SCORING_SECONDS, round(time.monotonic() - started, 1))
            for name, score in scores.items():
                candidate.trial.set_user_attr(f"{SCORE}{name}", score)
            parts = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
            self._say(f"  {show_mapping(candidate.mapping)}  {fitness:.2f}  ({parts})")
            yield fitness

    def _give_up(self, candidate: Candidate, problem: str) -> float:
        candidate.trial.set_user_attr(PROBLEM, problem)
        self._say(f"  {show_mapping(candidate.mapping)}  no fitness: {problem}", style="yellow")
        return math.nan

    def _say(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def show_mapping(mapping: Sequence[int]) -> str:
    """Write a mapping as the paper does: `(0, 0, 5, 10)`."""
    return f"({', '.join(map(str, mapping))})"


def file_name(mapping: MappingTuple) -> str:
    """Return a mapping as a file may be called: `0-0-5-10`."""
    return "-".join(map(str, mapping))
