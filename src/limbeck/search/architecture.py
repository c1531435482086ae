"""`search_architecture`: a student's shape under limits, on a subset, resumable, by any number of workers."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any, get_args

import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from optuna.samplers import BaseSampler
from optuna.study import Study, get_all_study_names
from optuna.trial import FrozenTrial, Trial, TrialState
from rich.console import Console
from transformers import PreTrainedModel

from limbeck.comparison.last_layers import LastLayers
from limbeck.core import devices, records
from limbeck.core.progress import Count
from limbeck.core.studies import SearchedShape
from limbeck.errors import RecipeError, TrainingError, suggestion
from limbeck.recipe.plan import RunPlan
from limbeck.search import engine, requests, shape_space
from limbeck.search.latency import LatencyBench, LatencySetting, ShapeLatency
from limbeck.search.pareto import pareto_front
from limbeck.search.requests import ArchitectureRequest as ArchitectureRequest
from limbeck.search.requests import MeasuringRequest as MeasuringRequest
from limbeck.search.scores import LOSS_BLOCKS, loss_batches, loss_kind, plain_copy, taught_layers
from limbeck.search.searched_recipe import check_text_only, steps_of_only_stage
from limbeck.search.shape_space import KnownShape, ShapePoint
from limbeck.search.storage import open_storage, shown
from limbeck.search.trial_log import DIVERGED, TrialLog, read_trials
from limbeck.search.work import TRAINING_SECONDS, Ask, Outcome
from limbeck.training.cohort_trainer import Cut
from limbeck.training.proxy import Trained
from limbeck.training.student_maker import make_student

SHAPE = "shape"
PARAMETERS = "parameters"
LATENCY = "latency"
LOSS = "loss"
STEPS = "steps"
"""User attributes of a trial."""
REFUSED = "refused"
"""User attribute of a pruned trial: why the shape cost no training."""
CUT = "cut"
"""User attribute of a pruned trial: why its training was not finished."""
SAME_AS = "same_as"
"""User attribute of a trial whose shape an earlier one has: that one's number."""
UNTRAINED_LOSS = "untrained loss"
"""Study attribute: the loss that is 1 in this study."""
BUSY = "the machine was busy"
"""Note of a shape whose latency is of processor times."""

MOST_REPEATS = 3
"""So many proposals in a row that are known already, before one that is new is drawn at random."""
CUT_SHARES = (1 / 3, 2 / 3)
"""After these shares of the steps the shapes in training are measured."""
COMPLETE_BEFORE_CUTS = 5
"""Shapes that have to be trained to the end before any is cut."""


def point_of(trial: FrozenTrial) -> ShapePoint | None:
    """Return the shape of a trial; none if it has no whole one yet."""
    if not all(name in trial.params for name in ShapePoint._fields):
        return None
    return ShapePoint(**{name: trial.params[name] for name in ShapePoint._fields})


def latency_of(trial: FrozenTrial | Trial) -> ShapeLatency | None:
    """Return the latency that was measured for a trial."""
    latency = trial.user_attrs.get(LATENCY)
    return None if latency is None else ShapeLatency(**latency)


def read_shapes(study: Study) -> TrialLog[ShapePoint]:
    """Gather a study's trials by shape; one is done when it was trained, cut, refused or diverged."""

    def settles(trial: FrozenTrial) -> bool:
        diverged = trial.state == TrialState.FAIL and bool(trial.user_attrs.get(DIVERGED))
        ended = trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or diverged
        return SAME_AS not in trial.user_attrs and ended

    return read_trials(study.get_trials(deepcopy=False), point_of, settles)


def trained_shapes(log: TrialLog[ShapePoint]) -> list[FrozenTrial]:
    """Return the trials that cost training."""
    return [trial for trial in log.done.values() if REFUSED not in trial.user_attrs]


@dataclass
class ShapeCandidate:
    """A shape to train.

    Args:
        shape: The shape.
        latency: As it was measured.
        trial: Its trial, for intermediate rewards.
        cut: Why its training was not finished.
    """

    shape: KnownShape
    latency: ShapeLatency
    trial: Trial
    cut: str | None = None


def _depth_and_widths(shape: KnownShape) -> tuple[float, ...]:
    """Return the sizes of a shape, those first that decide the most of its latency."""
    point = shape.point
    return point.layers, point.hidden, point.ffn, point.heads


class ArchitectureSearch(engine.SharedSearch):
    """A search for a shape that is checked and planned.

    Shapes are compared by what their students lack of the teacher on held-out text, alike for every shape and method.
    The loss `hidden` is the hidden-state loss of the comparative study (arXiv 2310.08797, equation 6) at the last
    layers, under the linear map that fits best, as a share of the variance of the teacher's hidden states; `relations`
    is the mean divergence of query-query, key-key and value-value relations (MiniLMv2 section 3.1). Both are divided by
    the loss of an untrained student, the same one for all shapes: 0 is a student that equals its teacher, about 1 one
    that has not learned. The loss `hidden_states`, where it is asked for, is equation 6 as printed and divided by
    nothing: the sum over the layers that the method teaches, or of the last where it teaches no hidden states.

    Attributes:
        space: The shapes.
        plan: Of a candidate's recipe, with one of the shapes.
        latency: How latencies are measured.
        loss: `hidden`, `relations` or `hidden_states`.
        cuts: After how many steps shapes without hope are looked for.
    """

    kind = "architecture"
    # A value depends on the shape of its trial, and not on the shape in the recipe.
    searched = r"student\.shape"
    queues_again = True
    request: requests.ArchitectureRequest
    _measure: LatencyBench
    _layers: LastLayers
    _unit: float

    def __init__(self, request: requests.ArchitectureRequest) -> None:
        super().__init__(request)
        share = request.limits.latency_share
        if share is not None and not share > 0:  # NaN too.
            raise RecipeError(
                f"--max-latency-share {share:g} is not a share of the teacher's latency; give more than 0."
            )
        if request.loss not in (known := get_args(requests.ShapeLoss)):
            raise RecipeError(f"Unknown loss '{request.loss}'.{suggestion(request.loss, known)}")
        self.space = shape_space.divide_shapes(request.proxy.proxy_recipe, request.sizes)
        shape_space.check_some_small_enough(request.limits, self.space.shapes.values())
        self.plan = next(iter(self.space.shapes.values())).plan
        check_text_only(self.plan)
        self.latency = LatencySetting.of(request.measuring, self.plan.teacher)
        steps = steps_of_only_stage(self.plan, "--no-prune") if request.prune else 0
        self.cuts = sorted({round(share * steps) for share in CUT_SHARES} - {0, steps})
        self.loss = loss_kind(self.plan) if request.loss == "normalised" else request.loss

    def identity(self) -> dict[str, Any]:
        """Return what rewards must have in common to be compared."""
        compared = {
            "space": {**asdict(self.space.sizes), "embedding": self.plan.blueprint.embedding},
            "limit": asdict(self.request.limits),
            "latency": self.latency.identity,
        }
        return {**records.flat(compared), "loss": self.loss, "loss.blocks": LOSS_BLOCKS}

    def sampler(self) -> BaseSampler:
        """Return the sampler that is asked for."""
        request = self.request
        return shape_space.make_sampler(request.sampler, self.plan.recipe.seed, self.space, request.episode)

    def check_text(self) -> None:
        """Refuse too little held-out text."""
        loss_batches(self.proxy)

    def open(self) -> Study:
        """Open the study, or make it; under a limit of latency it begins with the shape that is likely the fastest."""
        request = self.request.proxy
        is_new = request.name not in get_all_study_names(open_storage(request.place))
        first = self._first_trial() if is_new and self.request.limits.latency_share is not None else None
        study = super().open()
        # Shapes go on whose reward is not below the median of all others so far. Successive halving would compare a
        # shape with those of its own batch only; the study's intermediate rewards compare it with every shape that any
        # worker trained to the same step, and a batch of good ones loses none.
        study.pruner = MedianPruner(n_startup_trials=COMPLETE_BEFORE_CUTS)
        if first is not None:
            study.enqueue_trial(**first)
        return study

    def _first_trial(self) -> dict[str, Any]:
        """Measure the shape that is least likely to be too slow, and return it as a trial to begin with.

        Raises:
            RecipeError: if even that is over the limit; there is no study then that another limit would not fit.
        """
        limits = self.request.limits
        shapes = self.space.shapes.values()
        fitting = [shape for shape in shapes if shape_space.refuse_parameters(limits, shape) is None]
        fastest = min(fitting, key=_depth_and_widths)
        latency = LatencyBench(self.proxy.load_teacher(), self.latency)(fastest.plan.student_config)
        if shape_space.refuse_latency(limits, latency.share):
            raise RecipeError(
                f"No shape is within --max-latency-share {limits.latency_share:g}: the smallest, {fastest.point}, "
                f"takes {latency.share:.3f} of the teacher's {latency.teacher_ms:.1f} ms; raise the limit, or list "
                "smaller sizes."
            )
        return {"params": fastest.point._asdict(), "user_attrs": {LATENCY: asdict(latency)}}

    def announce(self, study: Study) -> None:
        """Say how many shapes there are, and how many are to be trained."""
        request = self.request
        done = len(trained_shapes(read_shapes(study)))
        known = f", {done} of them already trained" if done else ""
        self.say(
            f"{len(self.space.shapes):,} shapes can be trained; {request.trials} will be{known}; study "
            f"'{request.proxy.name}' in {shown(request.proxy.place)}"
        )

    def is_finished(self, study: Study) -> bool:
        """Return whether so many shapes are trained, or all that there are."""
        log = read_shapes(study)
        return len(trained_shapes(log)) >= self.request.trials or not (log.running or self._open_shapes(log))

    def _open_shapes(self, log: TrialLog[ShapePoint]) -> list[ShapePoint]:
        """Return the shapes that nothing is known against, and that no worker has."""
        taken = {*log.done, *log.running}
        limits = self.request.limits
        return [
            point
            for point, shape in self.space.shapes.items()
            if point not in taken and shape_space.refuse_parameters(limits, shape) is None
        ]

    def load(self, study: Study) -> None:
        """Prepare to measure latencies, and losses on the scale of an untrained student's."""
        proxy = self.proxy
        device = devices.choose_device("auto")
        teacher = proxy.load_teacher().to(device).eval()
        timed = teacher if self.latency.device == device else proxy.load_teacher()
        shapes = [shape.plan.student for shape in self.space.shapes.values()]
        self._layers = LastLayers(teacher, loss_batches(proxy), shapes)
        self._measure = LatencyBench(timed, self.latency)
        if UNTRAINED_LOSS not in study.user_attrs:
            plan = min(self.space.shapes.values(), key=lambda shape: shape.parameters).plan
            student, _ = make_student(plan.student_plan, proxy.load_teacher, seed=plan.recipe.seed)
            loss = self._loss(student, plan)
            if not (math.isfinite(loss) and loss > 0):
                raise TrainingError(f"An untrained student has the loss {loss}, so no other can be compared with it.")
            study.set_user_attr(UNTRAINED_LOSS, loss)
        self._unit = 1.0 if self.loss == "hidden_states" else float(study.user_attrs[UNTRAINED_LOSS])

    def _loss(self, student: PreTrainedModel, plan: RunPlan) -> float:
        """Return the loss of a student without taps, which is not yet divided by its unit."""
        student = student.to(self._layers.device)
        if self.loss == "hidden_states":
            return self._layers.hidden_states_loss(student, taught_layers(plan))
        relations, explained = self._layers.compare(student)
        assert explained is not None  # there are three batches
        return relations if self.loss == "relations" else 1 - explained

    def propose(self, study: Study, ask: Ask) -> list[ShapeCandidate]:
        """Take shapes; those that an earlier trial has, or that are beyond a limit, cost no training.

        Two workers that propose the same shape in the same instant may both train it, at the cost of the time.
        """
        request = self.request
        log = read_shapes(study)
        missing = request.trials - len(trained_shapes(log)) - len(log.running)
        count = min(request.batch, missing)
        taken: list[ShapeCandidate] = []
        trials_asked = 0
        repeats = 0
        while len(taken) < count:
            log = read_shapes(study)
            free = self._open_shapes(log)
            if not free:
                break
            if repeats >= MOST_REPEATS:
                random = np.random.default_rng([self.plan.recipe.seed, trials_asked, len(log.done)])
                study.enqueue_trial(free[random.integers(len(free))]._asdict())
                repeats = 0
            trial = ask()
            trials_asked += 1
            point = self._suggest(trial)
            earlier = log.done[point].number if point in log.done else log.running.get(point)
            if earlier is not None:
                # A failed trial is none to samplers and pruners, so that a shape counts once however often proposed.
                trial.set_user_attr(SAME_AS, earlier)
                study.tell(trial, state=TrialState.FAIL)
                repeats += 1
                continue
            candidate = self._screen(study, trial, point)
            if candidate is not None:
                taken.append(candidate)
        return taken

    def _suggest(self, trial: Trial) -> ShapePoint:
        """Return the shape that the sampler proposes."""
        sizes = {}
        for name, choices in asdict(self.space.sizes).items():
            sizes[name] = trial.suggest_categorical(name, choices)
        point = ShapePoint(**sizes)
        trial.set_user_attr(SHAPE, str(point))
        return point

    def _screen(self, study: Study, trial: Trial, point: ShapePoint) -> ShapeCandidate | None:
        """Refuse a shape that cannot be trained or is beyond a limit, else make it a candidate."""
        limits = self.request.limits
        shape = self.space.shapes.get(point)
        if shape is None:
            _refuse(study, trial, self.space.impossible[point])
            return None
        trial.set_user_attr(PARAMETERS, shape.parameters)
        reason = shape_space.refuse_parameters(limits, shape)
        if reason is not None:
            _refuse(study, trial, reason)
            return None
        latency = self._latency(study, shape)
        trial.set_user_attr(LATENCY, asdict(latency))
        reason = shape_space.refuse_latency(limits, latency.share)
        if reason is not None:
            _refuse(study, trial, reason)
            return None
        return ShapeCandidate(shape, latency, trial)

    def _latency(self, study: Study, shape: KnownShape) -> ShapeLatency:
        """Return the latency of a shape, measured once in a study."""
        for trial in study.get_trials(deepcopy=False):
            if point_of(trial) == shape.point:
                latency = latency_of(trial)
                if latency is not None:
                    return latency
        return self._measure(shape.plan.student_config)

    def plan_of(self, candidate: ShapeCandidate) -> RunPlan:
        """Return the recipe with its shape."""
        return candidate.shape.plan

    def cuts_of(self, candidates: Sequence[ShapeCandidate]) -> Mapping[int, Cut]:
        """Leave out the shapes without hope."""
        return {step: partial(self._cut, candidates, step) for step in self.cuts}

    def _cut(
        self, candidates: Sequence[ShapeCandidate], step: int, students: Mapping[int, PreTrainedModel]
    ) -> Collection[int]:
        """Report the rewards of the shapes in training, and return which go on."""
        for index, student in students.items():
            candidate = candidates[index]
            plan = candidate.shape.plan
            loss = self._loss(plain_copy(student, plan), plan) / self._unit
            if not math.isfinite(loss):
                continue  # The end of the training says whether it diverged.
            reward = shape_space.shape_reward(loss, candidate.latency.share, 1.0)
            try:
                candidate.trial.report(reward, step)
                if candidate.trial.should_prune():
                    candidate.cut = f"after {step} steps its reward {reward:.3f} was below the median of the others"
            except UpdateFinishedTrialError:
                candidate.cut = "this worker was taken for dead, and another one now trains the shape"
        return [index for index in students if candidates[index].cut is None]

    def score(self, candidate: ShapeCandidate, trained: Trained) -> tuple[Outcome, str]:
        """Return the reward of a shape that was trained to the end."""
        notes = {STEPS: trained.steps}
        size = f"{candidate.shape.parameters:,} parameters"
        what = f"{candidate.shape.point} ({size}, {candidate.latency.share:.3f} of the teacher's latency)"
        if not trained.diverged and candidate.cut is not None:
            return Outcome(notes={**notes, CUT: candidate.cut}, cut=True), f"{what}: cut: {candidate.cut}"
        loss = math.nan
        if not trained.diverged:
            loss = self._loss(trained.student, candidate.shape.plan) / self._unit
        if not math.isfinite(loss):
            return Outcome(notes=notes), f"{what}: diverged"
        reward = shape_space.shape_reward(loss, candidate.latency.share, 1.0)
        return Outcome(reward, {**notes, LOSS: loss}), f"{what}: loss {loss:.4f}, reward {reward:.4f}"

    def progress(self, study: Study) -> tuple[float, str, Count]:
        """Return the share of the shapes that is trained, in words and in shapes too."""
        done = len(trained_shapes(read_shapes(study)))
        trials = self.request.trials
        return min(1.0, done / trials), f"{done} of {trials} shapes", Count(done, "shapes")

    def results(self, study: Study) -> dict[str, Any]:
        """Return every shape that was tried, the best, the front of loss and latency, and the best one's recipe.

        Raises:
            TrainingError: if no shape came to a loss; the study is kept.
        """
        request = self.request
        plan = self.plan
        done = read_shapes(study).done
        shapes = [shape_fields(point, trial) for point, trial in done.items()]
        best, front = best_and_front(shapes)
        if best is None:
            raise TrainingError(_nothing_trained(shapes, shown(request.proxy.place)))
        best_point = next(point for point, trial in done.items() if trial.number == best.trial)
        trained = [shape for shape in shapes if shape.state == "trained"]
        latencies = [shape.teacher_ms for shape in trained if shape.teacher_ms is not None]
        return {
            "teacher": {
                "name": plan.teacher_info.title,
                "shape": str(plan.teacher),
                "latency_ms": median(latencies),
            },
            "space": {**asdict(self.space.sizes), "shapes": len(self.space.shapes)},
            "limits": asdict(request.limits),
            "latency": {**self.latency.identity, "seconds": self.latency.seconds},
            "loss": {"kind": self.loss, "untrained": study.user_attrs[UNTRAINED_LOSS]},
            "sampler": request.sampler,
            "episode": (request.episode or 1) if request.sampler == "kd_nas" else None,
            "cuts": self.cuts,
            "shapes": shapes,
            "best": best,
            "front": front,
            "recipe": shape_space.with_shape(request.proxy.recipe, best_point),
            "cost": _cost(study.get_trials(deepcopy=False), shapes),
        }


def _refuse(study: Study, trial: Trial, reason: str) -> None:
    """End the trial of a shape that is not to be trained."""
    trial.set_user_attr(REFUSED, reason)
    study.tell(trial, state=TrialState.PRUNED)


def search_architecture(request: requests.ArchitectureRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the shape of the best reward: low loss at low latency, within limits.

    The reward is that of the comparative study (arXiv 2310.08797, equation 12) on the loss of `ArchitectureSearch` and
    the latency that is measured here. A search that was stopped goes on where it was, a finished one where more trials
    are asked for, and workers that are started elsewhere on the same storage join it.

    Args:
        request: The request.
        console: Where progress goes; nowhere by default.

    Returns:
        The record, as plain values: see `ArchitectureSearch.results`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was trained is kept.
    """
    return engine.run_search_of(ArchitectureSearch(request), console)


def best_and_front(shapes: Sequence[SearchedShape]) -> tuple[SearchedShape | None, list[int]]:
    """Return the trained shape of the best reward, and the trials that no other beats in both loss and latency."""
    trained = [shape for shape in shapes if shape.state == "trained"]
    costs = [(shape.loss or 0.0, shape.latency_share or 0.0) for shape in trained]

    def reward_of(shape: SearchedShape) -> float:
        return -math.inf if shape.reward is None else shape.reward

    best = max(trained, key=reward_of, default=None)
    return best, [trained[index].trial for index in pareto_front(costs)]


def shape_fields(point: ShapePoint, trial: FrozenTrial) -> SearchedShape:
    """Return a shape of the record, of the trial that settled it.

    Its parameters, latency, loss and reward are there as far as they are known, with its `state` and the `reason`.
    """
    attributes = trial.user_attrs
    state, reason = _state(trial)
    known = {name: attributes.get(name) for name in (PARAMETERS, LOSS, STEPS, TRAINING_SECONDS)}
    latency = attributes.get(LATENCY, {})
    return SearchedShape(
        trial=trial.number,
        **(point._asdict() | {"ffn": point.ffn_width} | known),
        latency_share=latency.get("share"),
        latency_ms=latency.get("student_ms"),
        teacher_ms=latency.get("teacher_ms"),
        threads=latency.get("threads"),
        note=BUSY if latency.get("busy") else None,
        reward=trial.value if state == "trained" else None,
        rewards_on_the_way={str(step): value for step, value in trial.intermediate_values.items()},
        state=state,
        reason=reason,
    )


def _state(trial: FrozenTrial) -> tuple[str, str | None]:
    """Return the state of a trial that is settled, and the reason if its shape was not trained to the end."""
    for key, state in ((REFUSED, "refused"), (CUT, "cut")):
        if key in trial.user_attrs:
            return state, trial.user_attrs[key]
    if trial.user_attrs.get(DIVERGED):
        return "diverged", "its loss is not a finite number"
    return "trained", None


def _cost(trials: Sequence[FrozenTrial], shapes: Sequence[SearchedShape]) -> dict[str, Any]:
    """Return the costs of a search: shapes by their state, trials that were lost, and the time of the training."""
    states = [shape.state for shape in shapes]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL and SAME_AS not in trial.user_attrs]
    return {
        **{state: states.count(state) for state in ("trained", "cut", "diverged", "refused")},
        "failed": len(failed) - states.count("diverged"),
        "training_seconds": round(sum(trial.user_attrs.get(TRAINING_SECONDS, 0.0) for trial in trials), 1),
    }


def _nothing_trained(shapes: Sequence[SearchedShape], place: str) -> str:
    slow = [shape.latency_share for shape in shapes if shape.state == "refused" and shape.latency_share is not None]
    if shapes and len(slow) == len(shapes):
        least = min(slow)
        return (
            f"No shape is within --max-latency-share: the fastest takes {least:.3f} of the teacher's latency; raise "
            "the limit, or list smaller sizes, under a new --name."
        )
    return (
        f"No shape reached a loss: {', '.join(dict.fromkeys(shape.reason or '' for shape in shapes))}; lower the "
        f"learning rate, under a new --name. The trials are kept in {place}."
    )
