"""`search_architecture`: a student's shape under limits, on a proxy, resumable, by any number of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from statistics import median
from typing import Any

from optuna.study import Study, get_all_study_names
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from limbeck.core.machine import choose_device, git_commit, hardware, versions
from limbeck.core.progress import Count, ProgressBar
from limbeck.core.workers import run_workers
from limbeck.corpus import Corpus
from limbeck.errors import Interrupted, RecipeError, TrainingError
from limbeck.models.loading import quiet
from limbeck.recipe.plan import RunPlan
from limbeck.search.requests import (
    MOST_WORKERS,
    ProxyRequest,
    check_positive,
    check_text_only,
    proxy_identity,
    steps_of_only_stage,
)
from limbeck.search.scores import LOSS_BLOCKS, LastLayerLoss, LossKind, held_out_batches, loss_kind
from limbeck.search.shape_latency import LatencyBench, LatencySetting, check_length, usual_length
from limbeck.search.shape_space import (
    ShapeLimits,
    ShapePoint,
    ShapeSizes,
    ShapeSpace,
    check_some_small_enough,
    fastest_guess,
    make_sampler,
    pareto_front,
    shape_space,
    with_shape,
)
from limbeck.search.shape_trials import (
    CUT,
    LATENCY,
    LOSS,
    PARAMETERS,
    REFUSED,
    SAME_AS,
    SECONDS,
    STEPS,
    ShapeSearch,
    ShapeTraining,
    cut_steps,
    is_finished,
    latency_of,
    read_shapes,
    run_shape_search,
    shape_pruner,
)
from limbeck.search.study import IDENTITY, open_storage, open_study, prepare_search_folder, quiet_optuna, shown
from limbeck.search.trials import DIVERGED
from limbeck.search.workers import searched_together
from limbeck.training.proxy import Proxy
from limbeck.training.students import make_student

# `ArchitectureRequest`: what is asked of a search of shapes, checked before any text is read or weight loaded.


@dataclass(frozen=True)
class MeasuringRequest:
    """How latencies are to be measured; see `LatencySetting`. No length is `usual_length` of the teacher."""

    device: str = "auto"
    length: int | None = None
    batch: int = 1
    seconds: float = 4.0


@dataclass(frozen=True)
class ArchitectureRequest:
    """A search for a student's shape.

    Args:
        proxy: The run, the proxy and the study.
        sizes: The sizes to choose from.
        limits: What the student may be at most.
        measuring: How latencies are measured.
        trials: Shapes to train in all, by all workers.
        batch: Shapes that a worker trains at once.
        sampler: Optuna's, by name.
        prune: Stop shapes without hope early.
        workers: Processes on this machine.
    """

    proxy: ProxyRequest
    sizes: ShapeSizes
    limits: ShapeLimits = field(default_factory=ShapeLimits)
    measuring: MeasuringRequest = field(default_factory=MeasuringRequest)
    trials: int = 24
    batch: int = 4
    sampler: str = "tpe"
    prune: bool = True
    workers: int = 1

    def check(self) -> ArchitectureSearch:
        """Plan the search.

        Raises:
            LimbeckError: one line for the first thing that is wrong.
        """
        self.proxy.check()
        for name in ("trials", "batch"):
            check_positive(f"--{name}", getattr(self, name))
        check_positive("--workers", self.workers, MOST_WORKERS)
        check_positive("--measure-batch", self.measuring.batch)
        check_positive("--measure-length", self.measuring.length)
        share = self.limits.latency_share
        if share is not None and not share > 0:  # NaN too.
            raise RecipeError(f"--max-latency-share {share:g} is no share of the teacher's latency; give more than 0.")
        make_sampler(self.sampler, seed=0)
        space = shape_space(self.proxy.proxy_recipe, self.sizes)
        check_some_small_enough(self.limits, space.shapes.values())
        plan = next(iter(space.shapes.values())).plan
        check_text_only(plan)
        latency = LatencySetting(
            device=choose_device(self.measuring.device),
            length=usual_length(plan.teacher) if self.measuring.length is None else self.measuring.length,
            batch=self.measuring.batch,
            seconds=self.measuring.seconds,
        )
        check_length(latency, plan.teacher)
        cuts = cut_steps(steps_of_only_stage(plan, "--no-prune")) if self.prune else []
        return ArchitectureSearch(self, space, plan, latency, loss_kind(plan), cuts)


@dataclass(frozen=True)
class ArchitectureSearch:
    """A checked search.

    Args:
        request: What was asked.
        space: The shapes.
        plan: Of the proxy's recipe, with one of the shapes.
        latency: How latencies are measured.
        loss: What shapes are compared by.
        cuts: After how many steps shapes without hope are looked for.
    """

    request: ArchitectureRequest
    space: ShapeSpace
    plan: RunPlan
    latency: LatencySetting
    loss: LossKind
    cuts: list[int]

    @property
    def identity(self) -> dict[str, Any]:
        """What rewards must have in common to be compared, besides the run: by dotted names, as JSON holds it."""
        limits = self.request.limits
        return {
            **{f"space.{name}": sizes for name, sizes in self.space.description.items()},
            "space.embedding": self.plan.blueprint.embedding,
            "limit.parameters": limits.parameters,
            "limit.latency_share": limits.latency_share,
            **{f"latency.{name}": value for name, value in self.latency.identity.items()},
            "loss": self.loss,
            "loss.blocks": LOSS_BLOCKS,
        }


# The record of a search of shapes: all that its study knows, as plain values.


KIND = "architecture"
BUSY = "the machine was busy"
"""Note of a shape whose latency is of processor times."""
UNTRAINED_LOSS = "untrained loss"
"""Study attribute: the loss that is 1 in this study."""


def architecture_record(search: ArchitectureSearch, study: Study) -> dict[str, Any]:
    """Return the record of a search.

    Args:
        search: The search.
        study: Its study.

    Returns:
        Plain values: `shapes` (every shape that was tried, in the order of its trials, with parameters, latency, loss
        and reward as far as they are known, its `state` and the `reason` for it), `best` (of the highest reward),
        `front` (trials that no other beats in loss and latency, the fastest first), `recipe` (the searched run with
        the best shape), `cost`, `identity` and what it ran on.

    Raises:
        TrainingError: if no shape came to a loss; the study is kept.
    """
    request, plan = search.request, search.plan
    trials = study.get_trials(deepcopy=False)
    settled = read_shapes(trials).settled
    shapes = [shape_fields(point, trial) for point, trial in settled.items()]
    trained = [shape for shape in shapes if shape["state"] == "trained"]
    if not trained:
        raise TrainingError(_nothing_trained(shapes, shown(request.proxy.place)))
    front = [trained[index] for index in pareto_front([(one["loss"], one["latency_share"]) for one in trained])]
    best = max(trained, key=lambda one: one["reward"])
    chosen = next(point for point, trial in settled.items() if trial.number == best["trial"])
    return {
        "kind": KIND,
        "name": request.proxy.name,
        "status": "finished",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "storage": shown(request.proxy.place),
        "identity": study.user_attrs[IDENTITY],
        "teacher": {
            "name": plan.teacher_choice.title,
            "shape": str(plan.teacher),
            "latency_ms": median(one["teacher_ms"] for one in trained),
        },
        "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
        "space": {**search.space.description, "shapes": len(search.space.shapes)},
        "limits": {"parameters": request.limits.parameters, "latency_share": request.limits.latency_share},
        "latency": {**search.latency.identity, "seconds": search.latency.seconds},
        "loss": {"kind": search.loss, "untrained": study.user_attrs[UNTRAINED_LOSS]},
        "share": request.proxy.share,
        "sampler": request.sampler,
        "cuts": search.cuts,
        "shapes": shapes,
        "best": best,
        "front": [one["trial"] for one in front],
        "recipe": with_shape(request.proxy.recipe, chosen).model_dump(mode="json", exclude_unset=True),
        "cost": _cost(trials, shapes),
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "git_commit": git_commit(),
        "hardware": hardware(),
    }


def shape_fields(point: ShapePoint, trial: FrozenTrial) -> dict[str, Any]:
    """Return what a record tells of a shape whose trial is settled."""
    attributes, latency = trial.user_attrs, latency_of(trial)
    state, reason = _state(trial)
    return {
        "trial": trial.number,
        "layers": point.layers,
        "hidden": point.hidden,
        "heads": point.heads,
        "ffn": point.ffn_width,
        "parameters": attributes.get(PARAMETERS),
        "latency_share": None if latency is None else latency.share,
        "latency_ms": None if latency is None else latency.student_ms,
        "teacher_ms": None if latency is None else latency.teacher_ms,
        "threads": None if latency is None else latency.threads,
        "note": BUSY if latency is not None and latency.busy else None,
        "loss": attributes.get(LOSS),
        "reward": trial.value if state == "trained" else None,
        "steps": attributes.get(STEPS),
        "rewards_on_the_way": {str(step): value for step, value in trial.intermediate_values.items()},
        "state": state,
        "reason": reason,
        "training_seconds": attributes.get(SECONDS),
    }


def _state(trial: FrozenTrial) -> tuple[str, str | None]:
    for key, state in ((REFUSED, "refused"), (CUT, "cut")):
        if key in trial.user_attrs:
            return state, trial.user_attrs[key]
    if trial.user_attrs.get(DIVERGED):
        return "diverged", "its loss is no finite number"
    return "trained", None


def _cost(trials: Sequence[FrozenTrial], shapes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What it took, with what was lost."""
    states = [shape["state"] for shape in shapes]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL and SAME_AS not in trial.user_attrs]
    return {
        **{state: states.count(state) for state in ("trained", "cut", "diverged", "refused")},
        "failed": len(failed) - states.count("diverged"),
        "training_seconds": round(sum(trial.user_attrs.get(SECONDS, 0.0) for trial in trials), 1),
    }


def _nothing_trained(shapes: Sequence[Mapping[str, Any]], place: str) -> str:
    slow = [shape for shape in shapes if shape["state"] == "refused" and shape["latency_share"] is not None]
    if shapes and len(slow) == sum(shape["state"] == "refused" for shape in shapes) == len(shapes):
        least = min(shape["latency_share"] for shape in slow)
        return (
            f"No shape is within --max-latency-share: the fastest takes {least:.3f} of the teacher's latency; raise "
            "the limit, or list smaller sizes, under a new --name."
        )
    return (
        f"No shape came to a loss: {', '.join(dict.fromkeys(shape['reason'] or '' for shape in shapes))}; lower the "
        f"learning rate, under a new --name. The trials are kept in {place}."
    )


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
        `limbeck.report.search` writes tables, figures and the recipe.
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
