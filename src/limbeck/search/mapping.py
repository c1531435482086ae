"""`search_mapping`: ELM's genetic search for a layer mapping, on a subset, resumable, by any number of workers."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from limbeck.core import records
from limbeck.core.progress import Count
from limbeck.errors import Interrupted, LimbeckError, RecipeError, TrainingError, suggestion
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search import engine, genetic_sampler, requests
from limbeck.search import scores as scoring
from limbeck.search.generations import (
    PROBLEM,
    SCORE,
    SCORING_SECONDS,
    Candidate,
    Generations,
    candidates_of,
    generation_rows,
    given_up,
)
from limbeck.search.genetic import default_population
from limbeck.search.mapping_space import NONE, MappingSpace, MappingTuple, elm_space, show_mapping
from limbeck.search.requests import PAPER_TASKS as PAPER_TASKS
from limbeck.search.requests import MappingRequest as MappingRequest
from limbeck.search.requests import task_measures as task_measures
from limbeck.search.searched_recipe import check_text_only, searched_stages, with_option
from limbeck.search.storage import shown
from limbeck.search.work import TRAINING_SECONDS, Outcome
from limbeck.training.proxy import Trained

OPTION = "mapping"
CANDIDATES = "candidates"


class MappingSearch(Generations, engine.SharedSearch):
    """A search for a layer mapping that is checked and planned.

    Attributes:
        space: The mappings.
        settings: Of the genetic algorithm.
    """

    kind = "mapping"
    done = "evaluated"
    searched = rf"stages\.\d+\.method\.{OPTION}"
    request: MappingRequest
    _scores: scoring.TaskScores | scoring.HeldOutScores

    def __init__(self, request: MappingRequest) -> None:
        super().__init__(request)
        self.plan = plan_run(request.proxy.proxy_recipe)
        self.space = elm_space(self.plan.student.layers, self.plan.teacher.layers, request.teacher_layers)
        check_searchable(self.plan, self.space)
        self.settings = _settings(request.genetic, self.space)
        self.genetic = genetic_sampler.GeneticSampler(self.space, self.settings, self.plan.recipe.seed)
        self.generations = request.generations
        # A worker's share of a generation, rounded up.
        self.batch = request.batch or math.ceil(self.settings.population / request.workers)
        self.on_tasks = bool(request.measures.tasks)

    @cached_property
    def fitness(self) -> dict[str, Any]:
        """The scores, and what tells them from others; the names of tasks or of held-out scores come first."""
        if self.on_tasks:
            return scoring.describe_tasks(self.request.measures)
        settings = {"pairs": scoring.PAIRS, "blocks": scoring.BLOCKS, "pooling": self.plan.pooling}
        return {"held_out": list(scoring.MAPPING_SCORES), **settings}

    def identity(self) -> dict[str, Any]:
        """Return what fitnesses must have in common to be compared."""
        return {**records.flat({"fitness": self.fitness}), **records.flat(self.genetic.identity)}

    def sampler(self) -> genetic_sampler.GeneticSampler:
        """Return what proposes mappings."""
        return self.genetic

    def check_text(self) -> None:
        """Refuse too little held-out text where it decides."""
        if not self.on_tasks:
            scoring.held_out_pairs(self.proxy)

    def announce(self, study: Study) -> None:
        """Say how large the space and the search are."""
        proxy = self.request.proxy
        self.say(
            f"{self.space.size:,} layer mappings; {self.generations} generations of {self.settings.population}; study "
            f"'{proxy.name}' in {shown(proxy.place)}"
        )
        if self.is_finished(study):
            more = len(generation_rows(study, self.space)) - self.generations
            shown_too = f", and {more} more than asked for are shown" if more > 0 else ""
            self.say(f"  already evaluated{shown_too}", style="dim")

    def load(self, study: Study) -> None:
        """Prepare the scores; the teacher is asked once and not kept."""
        if self.on_tasks:
            folder = self.request.proxy.output.expanduser() / CANDIDATES
            self._scores = scoring.TaskScores(self.proxy, self.request.measures, list(self.fitness["tasks"]), folder)
        else:
            self._scores = scoring.HeldOutScores(self.proxy)

    def plan_of(self, candidate: Candidate) -> RunPlan:
        """Return the recipe with its mapping."""
        return plan_candidate(self.plan.recipe, candidate.mapping)

    def train(self, candidates: Sequence[Candidate]) -> Iterator[Outcome]:
        """Say which generation it is, and train."""
        numbers: set[int] = set()
        for candidate in candidates:
            if "generation" in candidate.trial.user_attrs:
                numbers.add(candidate.trial.user_attrs["generation"])
        which = "Queued in the study"
        if numbers:
            which = f"Generation {', '.join(map(str, sorted(numbers)))}"
        self.say(f"{which}: {len(candidates)} to evaluate")
        return super().train(candidates)

    def score(self, candidate: Candidate, trained: Trained) -> tuple[Outcome, str]:
        """Return the mean score of a student; one that diverged, or that cannot be scored, has none."""
        started = time.monotonic()
        mapping = candidate.mapping
        try:
            if trained.diverged:
                raise TrainingError("its training diverged")
            name = "-".join(map(str, mapping))
            scores = self._scores.measure(trained.student, self.plan_of(candidate), name, trained.learned)
            fitness = scoring.mean_score(scores)
            if math.isnan(fitness):
                raise TrainingError("a score is NaN: its student gives every text the same vector")
        except Interrupted:
            raise
        except LimbeckError as problem:
            return Outcome(notes={PROBLEM: str(problem)}), f"{show_mapping(mapping)}  no fitness: {problem}"
        notes = {SCORING_SECONDS: round(time.monotonic() - started, 1)}
        parts = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
        outcome = Outcome(fitness, notes | {f"{SCORE}{name}": score for name, score in scores.items()})
        return outcome, f"{show_mapping(mapping)}  {fitness:.2f}  ({parts})"

    def progress(self, study: Study) -> tuple[float, str, Count]:
        """Return the share of the generations that is evaluated, in words and in candidates too."""
        rows = generation_rows(study, self.space)
        if not rows:
            return 0.0, "generation 1", Count(0, CANDIDATES)
        last = rows[-1]
        generations = self.generations
        share = (len(rows) - 1 + len(last.members) / last.size) / generations
        best = max(row.maximum for row in rows)
        what = f"generation {last.number} of {generations}: {len(last.members)} of {last.size}, best {best:.2f}"
        return min(share, 1.0), what, Count(sum(len(row.members) for row in rows), CANDIDATES)

    def results(self, study: Study) -> dict[str, Any]:
        """Return generations (the paper's table 5), every mapping that has a fitness, best first, and its recipe."""
        trials = study.get_trials(deepcopy=False)
        candidates = candidates_of(trials, self.space)
        best = None
        recipe = None
        if candidates:
            best = candidates[0]
            recipe = with_option(self.request.proxy.recipe, OPTION, best.mapping)
        return {
            "student": {"shape": str(self.plan.student)},
            "space": {"size": self.space.size, **self.space.description},
            "scores": list(self.fitness["tasks" if self.on_tasks else "held_out"]),
            "generations": generation_rows(study, self.space),
            "candidates": candidates,
            "best": best,
            "recipe": recipe,
            "cost": {
                "evaluations": len(candidates),
                "failed": sum(trial.state == TrialState.FAIL for trial in trials),
                TRAINING_SECONDS: _sum_of_notes(trials, TRAINING_SECONDS),
                SCORING_SECONDS: _sum_of_notes(trials, SCORING_SECONDS),
            },
            "given_up": given_up(trials, self.space),
        }


def _sum_of_notes(trials: Sequence[FrozenTrial], name: str) -> float:
    """Return the sum of a user attribute over trials, in tenths."""
    return round(sum(trial.user_attrs.get(name, 0.0) for trial in trials), 1)


def search_mapping(request: MappingRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the layer mapping whose student does best on a subset of the text.

    A search that was stopped goes on where it was, a finished one where more generations are asked for, and workers
    that are started elsewhere on the same storage join it.

    Args:
        request: The request.
        console: Where progress goes; nowhere by default.

    Returns:
        The record, as plain values: see `MappingSearch.results`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was evaluated is kept.
    """
    return engine.run_search_of(MappingSearch(request), console)


def plan_candidate(recipe: Recipe, mapping: MappingTuple) -> RunPlan:
    """Plan the run of a mapping.

    Raises:
        RecipeError: if the recipe cannot be trained by it.
    """
    try:
        return plan_run(with_option(recipe, OPTION, list(mapping)))
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
    searched_stages(plan.recipe, OPTION, "takes no layer mapping")
    if space.size == 1:
        only = space.decode(next(iter(space)))
        raise RecipeError(f"{list(only)} is the only layer mapping there is, so there is nothing to search.")
    lowest = min(space.choices[-1].values())
    plan_candidate(plan.recipe, (NONE,) * (space.student - 1) + (lowest,))


def _settings(genetic: Mapping[str, Any], space: MappingSpace) -> requests.GeneticSettings:
    """Return the settings of the algorithm; the population is no larger than the space.

    Raises:
        RecipeError: for a setting that it does not have.
    """
    known = [field.name for field in fields(requests.GeneticSettings)]
    for name in genetic:
        if name not in known:
            raise RecipeError(f"Unknown genetic setting '{name}'.{suggestion(name, known)}")
    population = min(default_population(space.student), space.size)
    return requests.GeneticSettings(**{"population": population, **genetic})
