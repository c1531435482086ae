"""`search_mapping`: ELM's genetic search for a layer mapping, on a subset, resumable, by any number of workers.

A *layer mapping* says which teacher layer each student layer learns from. A *candidate* is a mapping to try; its
*fitness* is the mean score of the student that is trained with it, on tasks or on held-out text.
"""

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
from limbeck.search import engine, held_out_scores, requests
from limbeck.search.generations import GENERATION, Candidate, Generations
from limbeck.search.genetic import default_population
from limbeck.search.genetic_sampler import GeneticSampler
from limbeck.search.mapping_results import (
    PROBLEM,
    SCORE,
    SCORING_SECONDS,
    candidates_of,
    generation_rows,
    given_up,
)
from limbeck.search.mapping_space import NONE, MappingSpace, MappingTuple, elm_space, show_mapping
from limbeck.search.requests import MappingRequest
from limbeck.search.scores import Scores, mean_score
from limbeck.search.searched_recipe import check_has_option, check_reads_model, check_text_only, with_option
from limbeck.search.storage import shown
from limbeck.search.task_scores import TaskScores, describe_tasks
from limbeck.search.work import TRAINING_SECONDS, Outcome
from limbeck.training.proxy import Trained

OPTION = "mapping"
"""The option of methods that is searched."""
CANDIDATES = "candidates"
"""The unit of the progress, and the name of the folder, below the search's, of students that are fine-tuned."""


def search_mapping(request: MappingRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the layer mapping whose student does best on a subset of the text.

    A search that was stopped goes on where it was, a finished one where more generations are asked for, and workers
    that are started elsewhere on the same storage join it.

    Args:
        request: The request.
        console: Receives the progress; by default it is not shown.

    Returns:
        The record, as plain values: see `MappingSearch.results`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was evaluated is kept.
    """
    return engine.run_search_of(MappingSearch(request), console)


class MappingSearch(Generations, engine.SharedSearch):
    """A search for a layer mapping that is checked and planned.

    Attributes:
        space: The mappings.
        settings: Settings of the genetic algorithm.
    """

    kind = "mapping"
    done = "evaluated"
    searched = rf"stages\.\d+\.method\.{OPTION}"
    request: MappingRequest
    _scores: TaskScores | held_out_scores.HeldOutScores

    def __init__(self, request: MappingRequest) -> None:
        super().__init__(request)
        recipe = request.proxy.proxy_recipe
        check_reads_model(recipe, "a layer mapping")
        self.plan = plan_run(recipe)
        self.space = elm_space(self.plan.student.layers, self.plan.teacher.layers, request.teacher_layers)
        check_searchable(self.plan, self.space)
        self.settings = _settings(request.genetic, self.space)
        self.genetic = GeneticSampler(self.space, self.settings, self.plan.recipe.seed)
        self.generations = request.generations
        # By default the workers share a generation.
        self.batch = math.ceil(self.settings.population / request.workers)
        if request.batch is not None:
            self.batch = request.batch
        self.on_tasks = bool(request.measures.tasks)

    @cached_property
    def fitness(self) -> dict[str, Any]:
        """The names of the scores, and the settings that their values depend on; a part of the study's identity."""
        if self.on_tasks:
            return describe_tasks(self.request.measures)
        return {
            "held_out": list(held_out_scores.MAPPING_SCORES),
            "pairs": held_out_scores.PAIRS,
            "blocks": held_out_scores.BLOCKS,
            "pooling": self.plan.pooling,
        }

    @property
    def score_names(self) -> list[str]:
        """The names of the tasks, or of the scores on held-out text."""
        if self.on_tasks:
            # The keys are names of tasks, the values fingerprints of their rows.
            return list(self.fitness["tasks"])
        return list(self.fitness["held_out"])

    def identity(self) -> dict[str, Any]:
        """Return the settings that a fitness depends on beside those of the run."""
        return records.flat({"fitness": self.fitness, **self.genetic.identity})

    def sampler(self) -> GeneticSampler:
        """Return the sampler that proposes mappings."""
        return self.genetic

    def check_text(self) -> None:
        """Refuse too little held-out text, where candidates are scored on it."""
        if not self.on_tasks:
            held_out_scores.held_out_pairs(self.proxy)

    def announce(self, study: Study) -> None:
        """Print how large the space and the search are."""
        proxy = self.request.proxy
        self.say(
            f"Searching {self.space.size:,} layer mappings in {self.generations} generations of "
            f"{self.settings.population}; study '{proxy.name}' in {shown(proxy.place)}"
        )
        if self.is_finished(study):
            line = "  already evaluated"
            # An earlier run of the search may have been asked for more generations, which its results show too.
            further_generations = len(generation_rows(study, self.space)) - self.generations
            if further_generations > 0:
                line += f", and {further_generations} more than asked for are shown"
            self.say(line, style="dim")

    def load(self, study: Study) -> None:
        """Prepare the scores; for those on held-out text the teacher runs once here, and is not kept."""
        if self.on_tasks:
            folder = self.request.proxy.output.expanduser() / CANDIDATES
            self._scores = TaskScores(self.proxy, self.request.measures, self.score_names, folder)
        else:
            self._scores = held_out_scores.HeldOutScores(self.proxy)

    def plan_of(self, candidate: Candidate) -> RunPlan:
        """Return the plan of the run with the candidate's mapping."""
        return plan_candidate(self.plan.recipe, candidate.mapping)

    def train(self, candidates: Sequence[Candidate]) -> Iterator[Outcome]:
        """Print the generation of the candidates, then train them."""
        # Candidates of two generations may be taken at once; queued mappings may belong to none.
        numbers: set[int] = set()
        for candidate in candidates:
            if GENERATION in candidate.trial.user_attrs:
                numbers.add(candidate.trial.user_attrs[GENERATION])
        title = "Queued in the study"
        if numbers:
            title = f"Generation {', '.join(str(number) for number in sorted(numbers))}"
        self.say(f"{title}: {len(candidates)} to evaluate")
        return super().train(candidates)

    def score(self, candidate: Candidate, trained: Trained) -> tuple[Outcome, str]:
        """Return the mean score of a student as its outcome, and a line about it to print.

        A student that diverged, or that cannot be scored, has an outcome without a value; the search goes on.
        """
        started = time.monotonic()
        mapping = candidate.mapping
        try:
            scores = self._measure(candidate, trained)
        except Interrupted:
            # A LimbeckError too, but it ends the whole search.
            raise
        except LimbeckError as error:
            # Without a value the trial fails, so that the mapping may be tried again.
            return Outcome(notes={PROBLEM: str(error)}), f"{show_mapping(mapping)}  no fitness: {error}"

        fitness = mean_score(scores)
        notes: dict[str, Any] = {SCORING_SECONDS: round(time.monotonic() - started, 1)}
        for name, score in scores.items():
            notes[f"{SCORE}{name}"] = score
        parts = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
        return Outcome(fitness, notes), f"{show_mapping(mapping)}  {fitness:.2f}  ({parts})"

    def _measure(self, candidate: Candidate, trained: Trained) -> Scores:
        """Score a student.

        Raises:
            TrainingError: if it has no score.
        """
        if trained.diverged:
            raise TrainingError("its training diverged")
        name = "-".join(str(layer) for layer in candidate.mapping)
        scores = self._scores.measure(trained.student, self.plan_of(candidate), name, trained.learned)
        if math.isnan(mean_score(scores)):
            raise TrainingError("a score is NaN, because the student gives every text the same vector")
        return scores

    def progress(self, study: Study) -> tuple[float, str, Count]:
        """Return the share of the generations that is evaluated, the present one in words, and all candidates."""
        rows = generation_rows(study, self.space)
        if not rows:
            return 0.0, "generation 1", Count(0, CANDIDATES)
        last = rows[-1]
        # All generations before the last are evaluated whole.
        evaluated_generations = len(rows) - 1 + len(last.members) / last.size
        share = min(1.0, evaluated_generations / self.generations)
        best = max(row.maximum for row in rows)
        candidates = sum(len(row.members) for row in rows)
        step = f"generation {last.number} of {self.generations}: {len(last.members)} of {last.size}, best {best:.2f}"
        return share, step, Count(candidates, CANDIDATES)

    def results(self, study: Study) -> dict[str, Any]:
        """Return the generations (ELM's table 5), the mappings by fitness, and the recipe with the best of them."""
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
            "scores": self.score_names,
            "generations": generation_rows(study, self.space),
            "candidates": candidates,
            "best": best,
            "recipe": recipe,
            "cost": {
                "evaluations": len(candidates),
                "failed": sum(trial.state == TrialState.FAIL for trial in trials),
                TRAINING_SECONDS: _seconds_of(trials, TRAINING_SECONDS),
                SCORING_SECONDS: _seconds_of(trials, SCORING_SECONDS),
            },
            "given_up": given_up(trials, self.space),
        }


def plan_candidate(recipe: Recipe, mapping: MappingTuple) -> RunPlan:
    """Plan the run of a mapping.

    Raises:
        RecipeError: if the recipe cannot be trained by it.
    """
    try:
        return plan_run(with_option(recipe, OPTION, list(mapping)))
    except LimbeckError as error:
        raise RecipeError(
            f"The search may try the mapping {list(mapping)}, with which this recipe cannot be trained: {error}"
        ) from None


def check_searchable(plan: RunPlan, space: MappingSpace) -> None:
    """Refuse a recipe whose layer mapping cannot be searched, before any text is read.

    Args:
        plan: The plan of the recipe.
        space: The mappings to search.

    Raises:
        RecipeError: for a recipe without stages, one that learns from labelled rows, one whose methods take no layer
            mapping, one that cannot be trained by the sparsest mapping, or a space of one mapping.
    """
    check_text_only(plan)
    check_has_option(plan.recipe, OPTION, "takes no layer mapping")
    if space.size == 1:
        only = space.decode(next(iter(space)))
        raise RecipeError(
            f"{list(only)} is the only possible layer mapping, so there is nothing to search; use it, or allow "
            "more teacher layers with --teacher-layers."
        )
    # In the sparsest mapping the student's last layer alone learns, from the lowest teacher layer that it may.
    choices_of_last_layer = space.choices[-1].values()
    lowest = min(choices_of_last_layer)
    sparsest = (NONE,) * (space.student - 1) + (lowest,)
    plan_candidate(plan.recipe, sparsest)


def _settings(genetic: Mapping[str, Any], space: MappingSpace) -> requests.GeneticSettings:
    """Return the settings of the algorithm; the population is no larger than the space.

    Raises:
        RecipeError: for a setting that it does not have.
    """
    names = [field.name for field in fields(requests.GeneticSettings)]
    for name in genetic:
        if name not in names:
            raise RecipeError(f"Unknown genetic setting '{name}'.{suggestion(name, names)}")
    settings: dict[str, Any] = {"population": min(default_population(space.student), space.size)}
    settings.update(genetic)
    return requests.GeneticSettings(**settings)


def _seconds_of(trials: Sequence[FrozenTrial], name: str) -> float:
    """Return the seconds of all trials by one of their user attributes, in tenths."""
    return round(sum(trial.user_attrs.get(name, 0.0) for trial in trials), 1)
