"""`search_mapping`: ELM's genetic search for a layer mapping, on a proxy, resumable, by any number of workers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from limbeck.comparison.plan import MeasuresSpec
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.progress import Count, ProgressBar
from limbeck.core.workers import run_workers
from limbeck.errors import Interrupted, RecipeError, TrainingError, suggestion
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.models.loading import quiet
from limbeck.recipe.load import apply_overrides
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.search.genetic import GeneticSettings, default_population
from limbeck.search.genetic_sampler import GeneticSampler, generation_key, recorded_generation
from limbeck.search.mapping_space import MappingSpace, MappingTuple, elm_space, to_binary
from limbeck.search.mapping_trials import (
    OPTION,
    PROBLEM,
    SCORE,
    SCORING_SECONDS,
    TRAINING_SECONDS,
    MappingFitness,
    check_searchable,
    run_search,
    with_mapping,
)
from limbeck.search.requests import MOST_WORKERS, ProxyRequest, check_positive, flat, proxy_identity
from limbeck.search.scores import (
    HeldOutScores,
    ProxyScores,
    TaskScores,
    describe_held_out,
    describe_tasks,
    held_out_pairs,
)
from limbeck.search.study import IDENTITY, open_storage, open_study, prepare_search_folder, quiet_optuna, shown
from limbeck.search.trials import DIVERGED, genome_of, read_ledger
from limbeck.search.workers import searched_together
from limbeck.training.proxy import Proxy

# `MappingRequest`: what is asked of a mapping search, checked before any text is read or weight loaded.


PAPER_TASKS = ("sst2", "mnli", "squad")
"""ELM's proxy tasks (arXiv 2012.06153, section 5.2)."""


def task_measures(
    tasks: str | None, *, data: str | None, preset: str, seeds: int, settings: Sequence[str] = ()
) -> MeasuresSpec:
    """Return what candidates are fine-tuned on.

    Args:
        tasks: Names by commas; `none` for held-out text instead; None for the paper's where `data` is given.
        data: Folder with the tasks' files; None or `hub` for the Hub.
        preset: Name of a protocol.
        seeds: Fine-tunings of every student on every task.
        settings: `setting=value` or `task.setting=value` each, over the protocol's.

    Raises:
        RecipeError: for an unknown protocol, no fine-tuning, settings that cannot be read, or those of no task.
    """
    if tasks is None:
        tasks = ",".join(PAPER_TASKS) if data is not None else "none"
    names = [] if tasks.strip().lower() == "none" else [name.strip() for name in tasks.split(",") if name.strip()]
    if not names and tasks.strip().lower() != "none":
        raise RecipeError("--tasks names no task; give some by commas, or none for held-out text.")
    if not names and settings:
        raise RecipeError("--set-task changes how tasks are fine-tuned, and there is none; give --tasks or --data.")
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}; give 1 or more.")
    changed = apply_overrides({}, settings)
    return MeasuresSpec(tasks=names, data=data, preset=PROTOCOLS[preset].name, seeds=seeds, settings=changed)


@dataclass(frozen=True)
class MappingRequest:
    """A search for a layer mapping.

    Args:
        proxy: The run, of which a stage takes a layer mapping; the proxy; the study. The paper's share is 0.1.
        generations: Asked for in all; a finished study goes on where they are more than it has.
        genetic: Fields of `GeneticSettings` that differ from the paper's.
        teacher_layers: That may be learned from; None for all.
        measures: Proxy tasks, and how students are fine-tuned on them; without tasks held-out text decides.
        batch: Candidates that a worker trains at once; None for its part of a generation.
        workers: Processes on this machine.
    """

    proxy: ProxyRequest
    generations: int = 5
    genetic: Mapping[str, Any] = field(default_factory=dict)
    teacher_layers: tuple[int, ...] | None = None
    measures: MeasuresSpec = field(default_factory=lambda: MeasuresSpec(preset="quick", seeds=1))
    batch: int | None = None
    workers: int = 1

    def check(self) -> MappingSearch:
        """Plan the search.

        Raises:
            LimbeckError: one line for the first thing that is wrong.
        """
        self.proxy.check()
        for name in ("generations", "batch"):
            check_positive(f"--{name}", getattr(self, name))
        check_positive("--workers", self.workers, MOST_WORKERS)
        plan = plan_run(self.proxy.proxy_recipe)
        space = elm_space(plan.student.layers, plan.teacher.layers, self.teacher_layers)
        check_searchable(plan, space)
        return MappingSearch(self, plan, space, self._settings(space))

    def _settings(self, space: MappingSpace) -> GeneticSettings:
        known = [one.name for one in fields(GeneticSettings)]
        for name in self.genetic:
            if name not in known:
                raise RecipeError(f"Unknown genetic setting '{name}'.{suggestion(name, known)}")
        population = min(default_population(space.student), space.size)
        settings = GeneticSettings(**{"population": population, **self.genetic})
        if settings.population > space.size:
            raise RecipeError(
                f"A population of {settings.population} is more than the {space.size} layer mappings there are; give "
                f"at most {space.size}, or let more teacher layers be learned from."
            )
        return settings


@dataclass(frozen=True)
class MappingSearch:
    """A checked search.

    Args:
        request: What was asked.
        plan: Of the proxy's recipe.
        space: The mappings.
        settings: Of the genetic algorithm.
    """

    request: MappingRequest
    plan: RunPlan
    space: MappingSpace
    settings: GeneticSettings

    @property
    def batch(self) -> int:
        """Candidates that one worker trains at once."""
        return self.request.batch or -(-self.settings.population // self.request.workers)

    def sampler(self) -> GeneticSampler:
        """Return what proposes mappings; every worker brings one, all alike."""
        return GeneticSampler(self.space, self.settings, self.plan.recipe.seed)


# The generations' table of a search: the course of the fitness and the best gene of each.
#
# Source: ELM (arXiv 2012.06153) table 5.


@dataclass(frozen=True)
class GenerationRow:
    """One generation of a search.

    Args:
        number: Counted from 1.
        fitnesses: Of its members that have a value, in their order; a genome that came twice counts twice.
        size: Members, with those that have no value (yet, or because they were given up).
        evaluated: Members that no earlier generation had, so that they cost an evaluation.
        best: The mapping of highest fitness, 0 for none; the first of equals.
        best_gene: The same in bits.
    """

    number: int
    fitnesses: tuple[float, ...]
    size: int
    evaluated: int
    best: MappingTuple
    best_gene: str

    @property
    def maximum(self) -> float:
        """The highest fitness."""
        return max(self.fitnesses)

    @property
    def minimum(self) -> float:
        """The lowest fitness."""
        return min(self.fitnesses)

    @property
    def mean(self) -> float:
        """The mean fitness."""
        return statistics.fmean(self.fitnesses)

    @property
    def deviation(self) -> float:
        """The standard deviation of the members as they are, divided by their number and not by one less."""
        return statistics.pstdev(self.fitnesses)


def generation_rows(study: Study, space: MappingSpace) -> list[GenerationRow]:
    """Return a row for every generation that has values, also for one that is under way."""
    attributes = study.user_attrs
    values = read_ledger(study.get_trials(deepcopy=False), space).values
    rows: list[GenerationRow] = []
    seen: set[tuple[int, ...]] = set()
    number = 1
    while (genomes := recorded_generation(attributes, number)) is not None:
        scored = [(genome, values[genome]) for genome in genomes if genome in values]
        if scored:
            best, _ = max(scored, key=lambda one: one[1])
            rows.append(
                GenerationRow(
                    number=number,
                    fitnesses=tuple(fitness for _, fitness in scored),
                    size=len(genomes),
                    evaluated=len({genome for genome, _ in scored} - seen),
                    best=space.decode(best),
                    best_gene=to_binary(best, space.bits),
                )
            )
        seen.update(genomes)
        number += 1
    return rows


# The record of a mapping search: all that its study knows, as plain values.


KIND = "mapping"


def mapping_record(search: MappingSearch, study: Study, scores: Sequence[str]) -> dict[str, Any]:
    """Return the record of a search.

    Args:
        search: The search.
        study: Its study.
        scores: The names of the scores whose mean is the fitness.

    Returns:
        Plain values: `generations` (the paper's table 5, with the members of each), `candidates` (every mapping that
        has a fitness, best first), `best` (the first of them), `recipe` (the searched run with the best mapping),
        `cost`, `identity` and what it ran on.
    """
    proxy, plan, space = search.request.proxy, search.plan, search.space
    trials = study.get_trials(deepcopy=False)
    candidates = _candidates(trials, space)
    by_gene = {candidate["gene"]: candidate for candidate in candidates}
    recipe = with_mapping(proxy.recipe, tuple(candidates[0]["mapping"])) if candidates else None
    return {
        "kind": KIND,
        "name": proxy.name,
        "status": "finished",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "storage": shown(proxy.place),
        "identity": study.user_attrs[IDENTITY],
        "teacher": {"name": plan.teacher_choice.title, "shape": str(plan.teacher)},
        "student": {"shape": str(plan.student)},
        "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
        "space": {"size": space.size, **space.description},
        "scores": list(scores),
        "share": proxy.share,
        "generations": _generations(study, space, by_gene),
        "candidates": candidates,
        "best": candidates[0] if candidates else None,
        "recipe": None if recipe is None else recipe.model_dump(mode="json", exclude_unset=True),
        "cost": _cost(trials, candidates),
        "given_up": _given_up(trials, space, by_gene),
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "git_commit": git_commit(),
        "hardware": hardware(),
    }


def _candidates(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[dict[str, Any]]:
    """Every evaluated mapping, once, by fitness; of equals the first that was tried."""
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        genome = genome_of(trial, space)
        if trial.state != TrialState.COMPLETE or genome is None:
            continue
        attributes = trial.user_attrs
        gene = to_binary(genome, space.bits)
        found.setdefault(
            gene,
            {
                "mapping": list(space.decode(genome)),
                "gene": gene,
                "fitness": trial.value,
                "scores": {name.removeprefix(SCORE): attributes[name] for name in attributes if name.startswith(SCORE)},
                "generation": attributes.get("generation"),
                "trial": trial.number,
                "training_seconds": attributes.get(TRAINING_SECONDS),
                "scoring_seconds": attributes.get(SCORING_SECONDS),
            },
        )
    return sorted(found.values(), key=lambda candidate: -candidate["fitness"])


def _generations(study: Study, space: MappingSpace, by_gene: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for row in generation_rows(study, space):
        kept = study.user_attrs[generation_key(row.number)]
        rows.append(
            {
                "number": row.number,
                "maximum": row.maximum,
                "minimum": row.minimum,
                "mean": row.mean,
                "deviation": row.deviation,
                "best": list(row.best),
                "best_gene": row.best_gene,
                "size": row.size,
                "evaluated": row.evaluated,
                "members": [gene for gene in kept["genomes"] if gene in by_gene],
                "breeding": kept["breeding"],
            }
        )
    return rows


def _cost(trials: Sequence[FrozenTrial], candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What it took, with what was lost: trials that failed are counted, and their time is where it is known."""
    return {
        "evaluations": len(candidates),
        "failed": sum(trial.state == TrialState.FAIL for trial in trials),
        "training_seconds": round(sum(trial.user_attrs.get(TRAINING_SECONDS, 0.0) for trial in trials), 1),
        "scoring_seconds": round(sum(trial.user_attrs.get(SCORING_SECONDS, 0.0) for trial in trials), 1),
    }


def _given_up(
    trials: Sequence[FrozenTrial], space: MappingSpace, by_gene: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Mappings that came to no fitness, and why at last."""
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        genome = genome_of(trial, space)
        if genome is None or not trial.user_attrs.get(DIVERGED):
            continue
        gene = to_binary(genome, space.bits)
        if gene not in by_gene:
            problem = trial.user_attrs.get(PROBLEM, "it came to no finite fitness")
            found[gene] = {"mapping": list(space.decode(genome)), "gene": gene, "problem": problem}
    return list(found.values())


CANDIDATES = "candidates"


def search_mapping(request: MappingRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the layer mapping whose student does best on the proxy.

    A search that was stopped goes on where it was, a finished one where more generations are asked for, and workers
    that are started elsewhere on the same storage join it.

    Args:
        request: What is asked.
        console: Where progress goes; nowhere by default.

    Returns:
        The record, as plain values; see `mapping_record`. Nothing but the study is on disk yet:
        `limbeck.report.search` writes tables, figures and the recipe.
        Under a launcher of several processes it is empty in all but the main one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was evaluated is kept.
    """
    console = console if console is not None else Console(quiet=True)
    search = request.check()
    tasks = bool(request.measures.tasks)
    with searched_together(search.plan, share=request.proxy.share, workers=request.workers, tasks=tasks) as searches:
        return _search(search, console) if searches else {}


def _search(search: MappingSearch, console: Console) -> dict[str, Any]:
    request = search.request
    place, name = request.proxy.place, request.proxy.name
    with quiet_optuna(), quiet():
        prepare_search_folder(request.proxy.output, kind=KIND, name=name)
        open_storage(place)
        fitness = _define_fitness(search)
        try:
            proxy = Proxy(search.plan, share=request.proxy.share, console=console)
            if not request.measures.tasks:
                held_out_pairs(proxy.corpora[0])
            study = _open_study(search, proxy, fitness)
            console.print(
                f"{search.space.size:,} layer mappings; {request.generations} generations of "
                f"{search.settings.population}; study '{name}' in {shown(place)}",
                highlight=False, markup=False, soft_wrap=True,
            )  # fmt: skip
            if _is_finished(search, study):
                more = len(generation_rows(study, search.space)) - request.generations
                said = f", and {more} more than asked for are shown" if more > 0 else ""
                console.print(f"  evaluated already{said}", style="dim", highlight=False)
            elif request.workers == 1:
                _work_on(search, proxy, study, fitness, console)
            else:
                _supervise(search, study, console)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted(
                f"Stopped; what is evaluated is kept in {shown(place)}; the same command goes on from there."
            ) from None
        return mapping_record(search, study, _names(fitness))


def _define_fitness(search: MappingSearch) -> dict[str, Any]:
    """Check what candidates are scored by, and say what tells it from other scores."""
    measures = search.request.measures
    return describe_tasks(measures) if measures.tasks else describe_held_out(search.plan)


def _names(fitness: Mapping[str, Any]) -> list[str]:
    """The scores whose mean is the fitness."""
    return list(fitness["tasks"] if "tasks" in fitness else fitness["held_out"])


def _open_study(search: MappingSearch, proxy: Proxy, fitness: Mapping[str, Any]) -> Study:
    sampler = search.sampler()
    identity = {
        "search": KIND,
        **proxy_identity(search.plan, proxy.corpora, search.request.proxy.share, searched=[OPTION]),
        **flat({"fitness": fitness}),
        **flat(sampler.identity),
    }
    return open_study(search.request.proxy.place, search.request.proxy.name, identity, sampler)


def _work_on(search: MappingSearch, proxy: Proxy, study: Study, fitness: Mapping[str, Any], console: Console) -> None:
    """Evaluate what is open, in this process."""
    request = search.request
    scores: ProxyScores
    if request.measures.tasks:
        folder = request.proxy.output.expanduser() / CANDIDATES
        scores = TaskScores(request.measures, _names(fitness), proxy.tokenizer, folder, console)
    else:
        scores = HeldOutScores(proxy.load_teacher(), proxy.tokenizer, proxy.corpora[0], search.plan)
    evaluate = MappingFitness(proxy, scores, search.plan.recipe, console)
    run_search(study, evaluate, generations=request.generations, batch=search.batch)


def _supervise(search: MappingSearch, study: Study, console: Console) -> None:
    """Have processes evaluate what is open, and show how far they are."""
    request = search.request
    # The study and the text are there by now: workers only open them.
    task = replace(request, batch=search.batch)
    with ProgressBar(console) as bar:

        def watch() -> None:
            bar(*_standing(study, search))

        problems = run_workers(work, task, request.workers, watch)
    if not _is_finished(search, study):
        raise TrainingError(
            f"All workers of the search ended before it was finished: {'; '.join(dict.fromkeys(problems))} What is "
            f"evaluated is kept in {shown(request.proxy.place)}; the same command goes on from there."
        )
    for problem in problems:
        console.print(f"  {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _is_finished(search: MappingSearch, study: Study) -> bool:
    """Whether all generations are evaluated, and nothing waits that somebody queued."""
    queued = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    return not queued and search.sampler().generation(study, search.request.generations).finished


def work(request: MappingRequest) -> None:
    """Be one worker process of a search whose study is there."""
    search = request.check()
    with quiet_optuna(), quiet():
        console = Console(quiet=True)
        proxy = Proxy(search.plan, share=request.proxy.share, console=console)
        fitness = _define_fitness(search)
        _work_on(search, proxy, _open_study(search, proxy, fitness), fitness, console)


def _standing(study: Study, search: MappingSearch) -> tuple[float, str, Count]:
    """How far a search is: the share of its generations that is evaluated, in words and in candidates too."""
    rows = generation_rows(study, search.space)
    if not rows:
        return 0.0, "generation 1", Count(0, "candidates")
    last, asked = rows[-1], search.request.generations
    share = (len(rows) - 1 + len(last.fitnesses) / last.size) / asked
    best = max(row.maximum for row in rows)
    what = f"generation {last.number} of {asked}: {len(last.fitnesses)} of {last.size}, best {best:.2f}"
    return min(share, 1.0), what, Count(sum(len(row.fitnesses) for row in rows), "candidates")
