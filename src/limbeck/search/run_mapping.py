"""`search_mapping`: ELM's genetic search for a layer mapping, on a proxy, resumable, by any number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optuna.study import Study
from optuna.trial import TrialState
from rich.console import Console

from limbeck.core.progress import Count, ProgressBar
from limbeck.core.workers import run_workers
from limbeck.errors import Interrupted, TrainingError
from limbeck.models.loading import quiet
from limbeck.search.generations import generation_rows
from limbeck.search.held_out_scores import HeldOutScores, describe_held_out, held_out_pairs
from limbeck.search.loop import run_search
from limbeck.search.mapping_candidates import OPTION
from limbeck.search.mapping_fitness import MappingFitness
from limbeck.search.mapping_record import KIND, mapping_record
from limbeck.search.mapping_request import MappingRequest, MappingSearch
from limbeck.search.optuna_log import quiet_optuna
from limbeck.search.proxy_identity import flat, proxy_identity
from limbeck.search.proxy_scores import ProxyScores, TaskScores, describe_tasks
from limbeck.search.search_folder import prepare_search_folder
from limbeck.search.storage import open_storage, shown
from limbeck.search.study import open_study
from limbeck.search.together import searched_together
from limbeck.training.proxy import Proxy

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
        `limbeck.report.search_mapping_tables` and its neighbours write tables, figures and the recipe.
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
