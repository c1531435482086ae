"""`search_teacher_layer`: which layer of the teacher to learn from, all candidates under one forward of it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import Trial, TrialState
from rich.console import Console

from limbeck.core.machine import choose_device
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, TrainingError
from limbeck.models.loading import quiet
from limbeck.search.held_out_scores import held_out_pairs
from limbeck.search.last_layer_loss import held_out_batches
from limbeck.search.layer_candidates import OPTION
from limbeck.search.layer_race import Racer, race
from limbeck.search.layer_scores import LayerScores, score_of
from limbeck.search.optuna_log import quiet_optuna
from limbeck.search.proxy_identity import proxy_identity
from limbeck.search.search_folder import prepare_search_folder
from limbeck.search.storage import open_storage, shown
from limbeck.search.study import open_study
from limbeck.search.teacher_layer_record import KIND, RESULT, layer_result, teacher_layer_record
from limbeck.search.teacher_layer_request import TeacherLayerRequest, TeacherLayerSearch
from limbeck.search.together import searched_together
from limbeck.search.trials import DIVERGED
from limbeck.search.workers import WORKER, LostTrials, SignOfLife
from limbeck.training.proxy import Proxy

POLL_SECONDS = 1.0


def search_teacher_layer(
    request: TeacherLayerRequest, console: Console | None = None, *, poll_seconds: float = POLL_SECONDS
) -> dict[str, Any]:
    """Rank the layers of a teacher by the students that learn from them, and recommend one.

    MiniLMv2 (arXiv 2012.15828, section 3.2) found the best layer by training a student from each, and left choosing it
    without that as future work. Here all students are trained at once, so the teacher runs once for all, and the lower
    ones are dropped on the way.

    A search that is finished gives its result again. One that was stopped or killed starts its training again, since
    its candidates share one training; another process that is at work on the study is waited for.

    Args:
        request: What is asked.
        console: Where progress goes; nowhere by default.
        poll_seconds: Between looks at what another process does.

    Returns:
        The record, as plain values; see `teacher_layer_record`. Nothing but the study is on disk yet:
        `limbeck.report.search_teacher_layer_tables` and its neighbours write tables, figures and the recipe.
        Under a launcher of several processes it is empty in all but the main one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it.
    """
    console = console if console is not None else Console(quiet=True)
    search = request.check()
    with searched_together(search.plan, share=request.proxy.share, workers=1) as searches:
        return _search(search, console, poll_seconds) if searches else {}


def _search(search: TeacherLayerSearch, console: Console, poll_seconds: float) -> dict[str, Any]:
    request = search.request
    place, name = request.proxy.place, request.proxy.name
    with quiet_optuna(), quiet():
        prepare_search_folder(request.proxy.output, kind=KIND, name=name)
        open_storage(place)  # before the text is read
        try:
            proxy = Proxy(search.plan, share=request.proxy.share, console=console)
            held_out_pairs(_corpus(proxy))
            held_out_batches(_corpus(proxy), proxy.tokenizer)
            study = _open(search, proxy)
            _await_others(study, console, poll_seconds)
            if RESULT not in study.user_attrs:
                rungs = ", ".join(f"{rung.candidates} to step {rung.end}" for rung in search.rungs)
                _say(console, f"{len(search.layers)} teacher layers at once{f': {rungs}' if rungs else ''}")
                _run(search, proxy, study, console)
        except KeyboardInterrupt:
            raise Interrupted("Stopped; the same command starts the training of the candidates again.") from None
        return teacher_layer_record(search, study)


def _open(search: TeacherLayerSearch, proxy: Proxy) -> Study:
    request = search.request.proxy
    run = proxy_identity(search.plan, proxy.corpora, request.share, searched=[OPTION])
    # The sampler has nothing to choose: every candidate is tried once.
    sampler = RandomSampler(search.plan.recipe.seed)
    return open_study(request.place, request.name, {"search": KIND, **run, **search.identity}, sampler)


def _await_others(study: Study, console: Console, poll_seconds: float) -> None:
    """Wait until no other process trains the candidates of this study; those of a dead one are failed."""
    lost = LostTrials(study)
    said = False
    while True:
        lost.fail()
        if RESULT in study.user_attrs or not study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            return
        if not said:
            _say(console, "Another process is at work on this study, or was killed elsewhere; waiting for it.")
            said = True
        time.sleep(poll_seconds)


def _run(search: TeacherLayerSearch, proxy: Proxy, study: Study, console: Console) -> None:
    """Train and score the candidates, each a trial, and keep the result in the study."""
    teacher = proxy.load_teacher().to(choose_device("auto")).eval()
    scores = LayerScores(teacher, proxy.tokenizer, _corpus(proxy), search.plan)
    with SignOfLife(study) as life:
        trials = [_begin(study, layer, life.worker) for layer in search.layers]

        def report(index: int, step: int, found: dict[str, float]) -> None:
            score = score_of(found)
            parts = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            _say(console, f"  layer {search.layers[index]} after {step} steps: {score:.2f} ({parts})")
            with suppress(UpdateFinishedTrialError):
                trials[index].report(score, step)

        started = time.monotonic()
        try:
            racers = race(proxy, search.plans, search.rungs, scores.measure, report)
        except BaseException:
            for trial in trials:
                study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            raise
        for trial, racer in zip(trials, racers, strict=True):
            _tell(study, trial, racer)
        if all(racer.diverged for racer in racers):
            raise TrainingError(
                "Every candidate diverged, so no layer can be recommended; lower the learning rate, under a new "
                f"--name. The study is kept in {shown(search.request.proxy.place)}."
            )
        study.set_user_attr(RESULT, layer_result(search, racers, time.monotonic() - started))


def _begin(study: Study, layer: int, worker: str) -> Trial:
    trial = study.ask()
    trial.set_user_attr(WORKER, worker)
    trial.suggest_int(OPTION, layer, layer)
    return trial


def _tell(study: Study, trial: Trial, racer: Racer) -> None:
    with suppress(UpdateFinishedTrialError):  # this process was taken for dead
        if racer.state == "trained":
            study.tell(trial, racer.last[1], skip_if_finished=True)
        elif racer.state == "cut":
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            trial.set_user_attr(DIVERGED, True)
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def _corpus(proxy: Proxy) -> Corpus:
    corpus = proxy.corpora[0]
    assert isinstance(corpus, Corpus)  # labelled ones are refused by the request
    return corpus


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
