"""`search_teacher_layer`: which layer of the teacher to learn from, all candidates under one forward of it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import Trial, TrialState
from rich.console import Console

from limbeck.core.machine import choose_device, git_commit, hardware, versions
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, RecipeError, TrainingError
from limbeck.models.loading import quiet
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.search.layer_race import (
    OPTION,
    LayerRung,
    Racer,
    choose_layers,
    layer_stage,
    race,
    ranking,
    rungs_of_budget,
    rungs_of_training,
    with_teacher_layer,
)
from limbeck.search.requests import ProxyRequest, check_steps, check_text_only, proxy_identity, steps_of_only_stage
from limbeck.search.scores import SCORES, LayerScores, describe_layer_scores, held_out_batches, held_out_pairs, score_of
from limbeck.search.study import IDENTITY, open_storage, open_study, prepare_search_folder, quiet_optuna, shown
from limbeck.search.trials import DIVERGED
from limbeck.search.workers import WORKER, LostTrials, SignOfLife, searched_together
from limbeck.training.proxy import Proxy

# `TeacherLayerRequest`: what is asked of a search of teacher layers, checked before text is read or weights loaded.


@dataclass(frozen=True)
class TeacherLayerRequest:
    """A search for the teacher layer to learn from.

    Args:
        proxy: The run, the proxy and the study; its steps are those of a candidate that is never dropped.
        layers: The candidates; None for every layer of the teacher.
        steps_total: Steps of all candidates together, in place of the proxy's steps; None for those.
        halving: Of how many candidates one goes on after each round; None trains all to the end.
    """

    proxy: ProxyRequest
    layers: tuple[int, ...] | None = None
    steps_total: int | None = None
    halving: int | None = 2

    def check(self) -> TeacherLayerSearch:
        """Plan the search.

        Raises:
            LimbeckError: one line for the first thing that is wrong.
        """
        self.proxy.check()
        check_steps("--steps-total", self.steps_total)
        if self.proxy.steps is not None and self.steps_total is not None:
            raise RecipeError("--steps and --steps-total both say how long candidates train; give one of them.")
        recipe = self.proxy.proxy_recipe
        layer_stage(recipe)
        plan = plan_run(recipe)
        check_text_only(plan)
        _check_depth(plan)
        layers = choose_layers(self.layers, plan)
        rungs = self._rungs(plan, len(layers))
        if rungs:
            recipe = replace(self.proxy, steps=rungs[-1].end).proxy_recipe
        plans = [plan_run(with_teacher_layer(recipe, layer)) for layer in layers]
        return TeacherLayerSearch(self, layers, rungs, plans)

    def _rungs(self, plan: RunPlan, candidates: int) -> Sequence[LayerRung]:
        """The rounds; none where all candidates are trained as long as the recipe says."""
        if self.halving is None:
            if self.steps_total is None:
                return ()
            if self.steps_total < candidates:
                raise RecipeError(
                    f"--steps-total {self.steps_total} leaves some of {candidates} candidates without a step; give at "
                    f"least {candidates}."
                )
            return (LayerRung(candidates, self.steps_total // candidates),)
        if self.steps_total is not None:
            if len(plan.stages) > 1:
                steps_of_only_stage(plan, "--no-halving")
            return rungs_of_budget(candidates, self.steps_total, self.halving)
        return rungs_of_training(candidates, steps_of_only_stage(plan, "--no-halving"), self.halving)


def _check_depth(plan: RunPlan) -> None:
    student, teacher = plan.student.layers, plan.teacher.layers
    if student > teacher:
        raise RecipeError(
            f"The student has {student} layers and its teacher {teacher}; give student.shape at most {teacher}."
        )


@dataclass(frozen=True)
class TeacherLayerSearch:
    """A checked search.

    Args:
        request: What was asked.
        layers: The candidates in order.
        rungs: The rounds; none where all are trained as long as the recipe says.
        plans: One for each candidate.
    """

    request: TeacherLayerRequest
    layers: tuple[int, ...]
    rungs: Sequence[LayerRung]
    plans: list[RunPlan]

    @property
    def plan(self) -> RunPlan:
        """The plan of the first candidate; the others differ in the teacher layer only."""
        return self.plans[0]

    @property
    def identity(self) -> dict[str, Any]:
        """What scores must have in common to be compared, besides the run: by dotted names, as JSON holds it."""
        rungs = [[rung.candidates, rung.end] for rung in self.rungs]
        return {"layers": list(self.layers), "rungs": rungs, **describe_layer_scores(self.plan)}


# The record of a search of teacher layers, as plain values.


KIND = "teacher-layer"
RESULT = "result"
"""Study attribute: what a finished search found; see `layer_result`."""


def layer_result(search: TeacherLayerSearch, racers: Sequence[Racer], seconds: float) -> dict[str, Any]:
    """Return what a search found, as its study keeps it.

    Returns:
        `layers`: a row for each candidate, best first, with its scores at every step that it was scored at, the steps
        that it trained, its state (`trained`, `cut`, `diverged`) and its own held-out loss. `seconds`: what all took.
        `created`: when.
    """
    rows = []
    for rank, index in enumerate(ranking(racers), start=1):
        racer = racers[index]
        rows.append(
            {
                "rank": rank,
                "layer": search.layers[index],
                "scores": [
                    {"step": step, "score": _plain(score_of(found))} | {k: _plain(v) for k, v in found.items()}
                    for step, found in sorted(racer.scores.items())
                ],
                "steps": racer.steps,
                "state": racer.state,
                "own_loss": _plain(racer.held_out.get("loss", math.nan)),
            }
        )
    return {"layers": rows, "seconds": round(seconds, 1), "created": datetime.now(UTC).isoformat(timespec="seconds")}


def teacher_layer_record(search: TeacherLayerSearch, study: Study) -> dict[str, Any]:
    """Return the record of a finished search.

    Returns:
        Plain values: `layers` (see `layer_result`), `best` (the first of them), `rungs`, `recipe` (the searched run,
        reading the best layer), `identity` and what it ran on.
    """
    request, plan = search.request, search.plan
    result = study.user_attrs[RESULT]
    best = result["layers"][0]
    return {
        "kind": KIND,
        "name": request.proxy.name,
        "status": "finished",
        "created": result["created"],
        "storage": shown(request.proxy.place),
        "identity": study.user_attrs[IDENTITY],
        "teacher": {"name": plan.teacher_choice.title, "shape": str(plan.teacher), "layers": plan.teacher.layers},
        "student": {"shape": str(plan.student)},
        "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
        "share": request.proxy.share,
        "scores": list(SCORES),
        "halving": request.halving,
        "rungs": [{"candidates": rung.candidates, "end": rung.end} for rung in search.rungs],
        "layers": result["layers"],
        "best": best,
        "recipe": with_teacher_layer(request.proxy.recipe, best["layer"]).model_dump(mode="json", exclude_unset=True),
        "cost": {"steps": sum(row["steps"] for row in result["layers"]), "seconds": result["seconds"]},
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "git_commit": git_commit(),
        "hardware": hardware(),
    }


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
        `limbeck.report.search` writes tables, figures and the recipe.
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
