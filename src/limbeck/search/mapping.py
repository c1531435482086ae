"""`search_mapping`: ELM's genetic search for a layer mapping, on a subset, resumable, by any number of workers."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias, cast

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from rich.console import Console

from limbeck.core import records, studies
from limbeck.core.progress import Count
from limbeck.errors import Interrupted, LimbeckError, RecipeError, TrainingError, suggestion
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search import engine, genetic_sampler, requests
from limbeck.search import scores as scoring
from limbeck.search.engine import TRAINING_SECONDS, Ask, Outcome
from limbeck.search.genetic import default_population
from limbeck.search.mapping_space import NONE, Genome, MappingSpace, MappingTuple, elm_space, show_mapping, to_binary
from limbeck.search.requests import PAPER_TASKS as PAPER_TASKS
from limbeck.search.requests import MappingRequest as MappingRequest
from limbeck.search.requests import task_measures as task_measures
from limbeck.search.study import DIVERGED, shown
from limbeck.search.workers import BEAT_SECONDS
from limbeck.training.proxy import Trained

OPTION = "mapping"
CANDIDATES = "candidates"
SCORE = "score."
"""Begins the user attribute of a trial that holds one score."""
SCORING_SECONDS, PROBLEM = "scoring_seconds", "problem"
"""User attributes of a trial: the time of its scoring, and why it has no score."""


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


class _Generations(engine.Work):
    """Evaluates mappings until so many generations are finished, and those that somebody queued in the study."""

    genetic: genetic_sampler.GeneticSampler
    generations: int
    batch: int

    def is_finished(self, study: Study) -> bool:
        """Return whether all generations are evaluated, and nothing waits that somebody queued."""
        return not _queued(study) and self.genetic.generation(study, self.generations).finished

    def propose(self, study: Study, ask: Ask) -> list[Candidate]:
        """Take open genomes of the present generation, and mappings that somebody queued in the study."""
        space = self.genetic.space
        taken: list[Candidate] = []
        while len(taken) < self.batch:
            present = self.genetic.generation(study, self.generations)
            if not present.open and not _queued(study):
                break
            trial = ask()
            mapping = genetic_sampler.suggest(trial, space)
            try:
                genome = space.encode(mapping)
            except RecipeError as problem:  # only a queued one
                trial.set_user_attr("refused", str(problem))
                study.tell(trial, state=TrialState.FAIL)
                continue
            trial.set_user_attr("genome", to_binary(genome, space.bits))
            if genome in present.genomes:
                trial.set_user_attr("generation", present.number)
            trials = study.get_trials(deepcopy=False)
            known = genetic_sampler.read_genomes(trials, space).values.get(genome)
            if known is not None:
                study.tell(trial, known)
            elif genome in present.genomes or "fixed_params" in trials[trial.number].system_attrs:
                taken.append(Candidate(mapping, trial))
            else:
                # Another worker took the last open genome in between.
                study.tell(trial, state=TrialState.PRUNED)
        return taken


def _queued(study: Study) -> bool:
    return bool(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))


class _Evaluated(_Generations):
    """Evaluates mappings by a function."""

    def __init__(
        self, sampler: genetic_sampler.GeneticSampler, generations: int, batch: int, evaluate: Evaluate
    ) -> None:
        self.genetic, self.generations, self.batch, self._evaluate = sampler, generations, batch, evaluate

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
    poll_seconds: float = engine.POLL_SECONDS,
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
    engine.work_on(study, work, beat_seconds=beat_seconds, poll_seconds=poll_seconds)


class MappingSearch(_Generations, engine.SharedSearch):
    """A search for a layer mapping that is checked and planned.

    Attributes:
        space: The mappings.
        settings: Of the genetic algorithm.
    """

    kind, done = "mapping", "evaluated"
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
        self.batch = request.batch or -(-self.settings.population // request.workers)
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
            said = f", and {more} more than asked for are shown" if more > 0 else ""
            self.say(f"  already evaluated{said}", style="dim")

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
        numbers = sorted({n for c in candidates if (n := c.trial.user_attrs.get("generation")) is not None})
        which = f"Generation {', '.join(map(str, numbers))}" if numbers else "Queued in the study"
        self.say(f"{which}: {len(candidates)} to evaluate")
        return super().train(candidates)

    def score(self, candidate: Candidate, trained: Trained) -> tuple[Outcome, str]:
        """Return the mean score of a student; one that diverged, or that cannot be scored, has none."""
        started, mapping = time.monotonic(), candidate.mapping
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
        last, asked = rows[-1], self.generations
        share = (len(rows) - 1 + len(last.members) / last.size) / asked
        best = max(row.maximum for row in rows)
        what = f"generation {last.number} of {asked}: {len(last.members)} of {last.size}, best {best:.2f}"
        return min(share, 1.0), what, Count(sum(len(row.members) for row in rows), CANDIDATES)

    def found(self, study: Study) -> dict[str, Any]:
        """Return generations (the paper's table 5), every mapping that has a fitness, best first, and its recipe."""
        trials = study.get_trials(deepcopy=False)
        candidates = candidates_of(trials, self.space)
        best = candidates[0] if candidates else None
        recipe = None if best is None else engine.with_option(self.request.proxy.recipe, OPTION, best.mapping)
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
                **{
                    name: round(sum(trial.user_attrs.get(name, 0.0) for trial in trials), 1)
                    for name in (TRAINING_SECONDS, SCORING_SECONDS)
                },
            },
            "given_up": _given_up(trials, self.space),
        }


def search_mapping(request: MappingRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the layer mapping whose student does best on a subset of the text.

    A search that was stopped goes on where it was, a finished one where more generations are asked for, and workers
    that are started elsewhere on the same storage join it.

    Args:
        request: The request.
        console: Where progress goes; nowhere by default.

    Returns:
        The record, as plain values: see `MappingSearch.found`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was evaluated is kept.
    """
    return engine.run_search_of(MappingSearch(request), console)


# Which recipes can be searched, and the variants of one.


def plan_candidate(recipe: Recipe, mapping: MappingTuple) -> RunPlan:
    """Plan the run of a mapping.

    Raises:
        RecipeError: if the recipe cannot be trained by it.
    """
    try:
        return plan_run(engine.with_option(recipe, OPTION, list(mapping)))
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
    engine.check_text_only(plan)
    engine.searched_stages(plan.recipe, OPTION, "takes no layer mapping")
    if space.size == 1:
        only = space.decode(next(iter(space)))
        raise RecipeError(f"{list(only)} is the only layer mapping there is, so there is nothing to search.")
    lowest = min(space.choices[-1].values())
    plan_candidate(plan.recipe, (NONE,) * (space.student - 1) + (lowest,))


def _settings(genetic: Mapping[str, Any], space: MappingSpace) -> requests.GeneticSettings:
    known = [one.name for one in fields(requests.GeneticSettings)]
    for name in genetic:
        if name not in known:
            raise RecipeError(f"Unknown genetic setting '{name}'.{suggestion(name, known)}")
    return requests.GeneticSettings(**{"population": min(default_population(space.student), space.size), **genetic})


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
        if members := [genome for genome in genomes if genome in values]:
            best, fitnesses = max(members, key=values.__getitem__), [values[genome] for genome in members]
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
    found = [
        studies.Candidate(
            mapping=list(space.decode(genome)),
            gene=to_binary(genome, space.bits),
            fitness=cast("float", trial.value),
            scores={n.removeprefix(SCORE): score for n, score in trial.user_attrs.items() if n.startswith(SCORE)},
            generation=trial.user_attrs.get("generation"),
            trial=trial.number,
            training_seconds=trial.user_attrs.get(TRAINING_SECONDS),
            scoring_seconds=trial.user_attrs.get(SCORING_SECONDS),
        )
        for genome, trial in genetic_sampler.read_genomes(trials, space).done.items()
    ]
    return sorted(found, key=lambda candidate: -candidate.fitness)


def _given_up(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[studies.GivenUp]:
    """Mappings that came to no fitness, and why at last."""
    done = genetic_sampler.read_genomes(trials, space).done
    problems = {
        genetic_sampler.genome_of(trial, space): trial.user_attrs.get(PROBLEM, "it reached no finite fitness")
        for trial in trials
        if trial.user_attrs.get(DIVERGED)
    }
    return [
        studies.GivenUp(mapping=list(space.decode(genome)), gene=to_binary(genome, space.bits), problem=problem)
        for genome, problem in problems.items()
        if genome is not None and genome not in done
    ]
