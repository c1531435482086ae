"""`search_architecture`: a student's shape under limits, on a proxy, resumable, by any number of workers."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from optuna.study import Study, get_all_study_names
from rich.console import Console

from limbeck.core.machine import choose_device
from limbeck.core.progress import Count, ProgressBar
from limbeck.core.workers import run_workers
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, RecipeError, TrainingError
from limbeck.models.loading import quiet
from limbeck.search.architecture_record import KIND, UNTRAINED_LOSS, architecture_record
from limbeck.search.architecture_request import ArchitectureRequest, ArchitectureSearch
from limbeck.search.last_layer_loss import LastLayerLoss, held_out_batches
from limbeck.search.optuna_log import quiet_optuna
from limbeck.search.proxy_identity import proxy_identity
from limbeck.search.search_folder import prepare_search_folder
from limbeck.search.shape_latency import LatencyBench
from limbeck.search.shape_limits import fastest_guess
from limbeck.search.shape_loop import ShapeSearch, is_finished, run_shape_search
from limbeck.search.shape_samplers import make_sampler
from limbeck.search.shape_training import ShapeTraining, shape_pruner
from limbeck.search.shape_trials import LATENCY, read_shapes
from limbeck.search.storage import open_storage, shown
from limbeck.search.study import open_study
from limbeck.search.together import searched_together
from limbeck.training.proxy import Proxy
from limbeck.training.students import make_student


def search_architecture(request: ArchitectureRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the shape of the best reward: low loss at low latency, within limits.

    The reward is that of the comparative study (arXiv 2310.08797, equation 12) on the loss of `LastLayerLoss` and the
    latency that is measured here. A search that was stopped goes on where it was, a finished one where more trials are
    asked for, and workers that are started elsewhere on the same storage join it.

    Args:
        request: What is asked.
        console: Where progress goes; nowhere by default.

    Returns:
        The record, as plain values; see `architecture_record`. Nothing but the study is on disk yet:
        `limbeck.report.search_architecture_tables` and its neighbours write tables, figures and the recipe.
        Under a launcher of several processes it is empty in all but the main one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was trained is kept.
    """
    console = console if console is not None else Console(quiet=True)
    search = request.check()
    with searched_together(search.plan, share=request.proxy.share, workers=request.workers) as searches:
        return _search(search, console) if searches else {}


def _search(search: ArchitectureSearch, console: Console) -> dict[str, Any]:
    request = search.request
    place, name = request.proxy.place, request.proxy.name
    with quiet_optuna(), quiet():
        prepare_search_folder(request.proxy.output, kind=KIND, name=name)
        is_new = name not in get_all_study_names(open_storage(place))
        try:
            proxy = Proxy(search.plan, share=request.proxy.share, console=console)
            _batches(proxy)
            first = _first_trial(search, proxy) if is_new and request.limits.latency_share is not None else None
            study = _open(search, proxy)
            if first is not None:
                study.enqueue_trial(**first)
            _say(console, _opening(search, study))
            if not _is_finished(search, study):
                if request.workers == 1:
                    _work_on(search, proxy, study, console)
                else:
                    _supervise(search, study, console)
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped; what is trained is kept in {shown(place)}; the same command goes on from there."
            ) from None
        return architecture_record(search, study)


def work(request: ArchitectureRequest) -> None:
    """Be one worker process of a search whose study is there."""
    search = request.check()
    with quiet_optuna(), quiet():
        proxy = Proxy(search.plan, share=request.proxy.share, console=Console(quiet=True))
        _work_on(search, proxy, _open(search, proxy), Console(quiet=True))


def _open(search: ArchitectureSearch, proxy: Proxy) -> Study:
    request = search.request
    # What a value depends on is the shape of its trial, and not the one that the recipe happens to name.
    run = proxy_identity(search.plan, proxy.corpora, request.proxy.share)
    run = {name: value for name, value in run.items() if not name.startswith("student.shape")}
    identity = {"search": KIND, **run, **search.identity}
    sampler = make_sampler(request.sampler, search.plan.recipe.seed)
    study = open_study(request.proxy.place, request.proxy.name, identity, sampler)
    study.pruner = shape_pruner()
    return study


def _work_on(search: ArchitectureSearch, proxy: Proxy, study: Study, console: Console) -> None:
    """Train what is missing, in this process."""
    request = search.request
    device = choose_device("auto")
    teacher = proxy.load_teacher().to(device).eval()
    timed = teacher if search.latency.device == device else proxy.load_teacher()
    shapes = [shape.plan.student for shape in search.space.shapes.values()]
    loss = LastLayerLoss(teacher, _batches(proxy), shapes, search.loss)
    loss = loss.divided_by(_untrained_loss(search, proxy, study, loss))
    run_shape_search(
        study,
        ShapeSearch(
            space=search.space,
            limits=request.limits,
            measure=LatencyBench(timed, search.latency),
            train=ShapeTraining(proxy, loss, search.cuts, console),
            trials=request.trials,
            batch=request.batch,
            seed=search.plan.recipe.seed,
        ),
    )


def _untrained_loss(search: ArchitectureSearch, proxy: Proxy, study: Study, loss: LastLayerLoss) -> float:
    """Return the loss of the smallest student as it starts, on whose scale all losses are; kept in the study."""
    if UNTRAINED_LOSS not in study.user_attrs:
        plan = min(search.space.shapes.values(), key=lambda shape: shape.parameters).plan
        student, _ = make_student(plan.student_choice, None, None, proxy.load_teacher, plan.recipe.seed)
        found = loss(student)
        if not (math.isfinite(found) and found > 0):
            raise TrainingError(f"An untrained student has the loss {found}, so no other can be compared with it.")
        study.set_user_attr(UNTRAINED_LOSS, found)
    return float(study.user_attrs[UNTRAINED_LOSS])


def _supervise(search: ArchitectureSearch, study: Study, console: Console) -> None:
    """Have processes train what is missing, and show how far they are."""
    request = search.request
    with ProgressBar(console) as bar:

        def watch() -> None:
            done = len(read_shapes(study.get_trials(deepcopy=False)).trained)
            bar(min(1.0, done / request.trials), f"{done} of {request.trials} shapes", Count(done, "shapes"))

        problems = run_workers(work, request, request.workers, watch)
    if not _is_finished(search, study):
        raise TrainingError(
            f"All workers of the search ended before it was finished: {'; '.join(dict.fromkeys(problems))} What is "
            f"trained is kept in {shown(request.proxy.place)}; the same command goes on from there."
        )
    for problem in problems:
        _say(console, f"  {problem}", style="yellow")


def _is_finished(search: ArchitectureSearch, study: Study) -> bool:
    """Whether enough shapes are trained, or all that there are."""
    ledger = read_shapes(study.get_trials(deepcopy=False))
    return is_finished(search.space, search.request.limits, ledger, search.request.trials)


def _first_trial(search: ArchitectureSearch, proxy: Proxy) -> dict[str, Any]:
    """Measure the shape that is least likely to be too slow, and return it as a trial to begin with.

    Raises:
        RecipeError: if even that is over the limit; there is no study then that another limit would not fit.
    """
    limits = search.request.limits
    small = [shape for shape in search.space.shapes.values() if limits.refuse_parameters(shape) is None]
    fastest = fastest_guess(small)
    latency = LatencyBench(proxy.load_teacher(), search.latency)(fastest.plan.student_config)
    if limits.refuse_latency(latency.share):
        raise RecipeError(
            f"No shape is within --max-latency-share {limits.latency_share:g}: the smallest, {fastest.point}, takes "
            f"{latency.share:.3f} of the teacher's {latency.teacher_ms:.1f} ms; raise the limit, or list smaller sizes."
        )
    return {"params": fastest.point._asdict(), "user_attrs": {LATENCY: asdict(latency)}}


def _batches(proxy: Proxy) -> list[Any]:
    corpus = proxy.corpora[0]
    assert isinstance(corpus, Corpus)  # labelled ones are refused by the request
    return held_out_batches(corpus, proxy.tokenizer)


def _opening(search: ArchitectureSearch, study: Study) -> str:
    done = len(read_shapes(study.get_trials(deepcopy=False)).trained)
    known = f", {done} of them trained already" if done else ""
    return (
        f"{len(search.space.shapes):,} shapes can be trained; {search.request.trials} are to be{known}; study "
        f"'{search.request.proxy.name}' in {shown(search.request.proxy.place)}"
    )


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
