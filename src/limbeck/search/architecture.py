"""`search_architecture`: a student's shape under limits, on a subset, resumable, by any number of workers.

A *shape* is a student's number of layers, its widths and its number of heads; a *point* is a shape as the parameters of
a trial. The *reward* of a shape is high for a low loss at a low latency. A shape is *refused* if it cannot be trained
or is beyond a limit, and *cut* if its training is ended early because other shapes do better.
"""

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
from limbeck.comparison.taught_vectors import TEXTS, TaughtVectors
from limbeck.core import devices, records
from limbeck.core.progress import Count
from limbeck.core.studies import SearchedShape
from limbeck.errors import RecipeError, TrainingError, suggestion
from limbeck.models.students import build_student
from limbeck.recipe.plan import RunPlan
from limbeck.search import engine, shape_space
from limbeck.search.held_out_scores import LOSS_BLOCKS, loss_batches, plain_copy
from limbeck.search.latency import LatencyBench, LatencySetting, ShapeLatency
from limbeck.search.pareto import pareto_front
from limbeck.search.requests import ArchitectureRequest, ShapeLoss
from limbeck.search.reward import shape_reward
from limbeck.search.searched_recipe import (
    check_has_layers,
    check_has_teacher_model,
    check_text_only,
    steps_of_only_stage,
)
from limbeck.search.shape_samplers import make_sampler
from limbeck.search.shape_space import KnownShape, ShapePoint
from limbeck.search.shape_trials import (
    CUT,
    LATENCY,
    LOSS,
    PARAMETERS,
    REFUSED,
    SAME_AS,
    SHAPE,
    STEPS,
    latency_of,
    point_of,
    read_shapes,
    shape_row,
    trained_trials,
)
from limbeck.search.storage import open_storage, shown
from limbeck.search.taught_streams import loss_name, taught_layers
from limbeck.search.trial_log import TrialLog
from limbeck.search.work import TRAINING_SECONDS, Ask, Outcome
from limbeck.training.cohort_trainer import Cut
from limbeck.training.proxy import Trained
from limbeck.training.student_maker import make_student

UNTRAINED_LOSS = "untrained loss"
"""Study attribute: the loss of an untrained student, by which the losses of this study are divided."""
MOST_REPEATS = 3
"""Proposals of known shapes in a row, after which a shape that is new is drawn at random."""
CUT_SHARES = (1 / 3, 2 / 3)
"""Shares of the training's steps after which shapes are measured, and may be cut."""
COMPLETE_BEFORE_CUTS = 5
"""Shapes that have to be trained to the end before any is cut."""


def search_architecture(request: ArchitectureRequest, console: Console | None = None) -> dict[str, Any]:
    """Search for the shape of the best reward: low loss at low latency, within limits.

    The reward is that of the comparative study (arXiv 2310.08797, equation 12) on the loss of `ArchitectureSearch` and
    the latency that is measured here. A search that was stopped goes on where it was, a finished one where more trials
    are asked for, and workers that are started elsewhere on the same storage join it.

    Args:
        request: The request.
        console: Receives the progress; by default it is not shown.

    Returns:
        The record, as plain values: see `ArchitectureSearch.results`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it; what was trained is kept.
    """
    return engine.run_search_of(ArchitectureSearch(request), console)


@dataclass
class ShapeCandidate:
    """A shape to train.

    Args:
        shape: The shape.
        latency: The measured latency.
        trial: Its trial, for intermediate rewards.
        cut: The reason why its training was ended early; None otherwise. It is set while the shape trains.
    """

    shape: KnownShape
    latency: ShapeLatency
    trial: Trial
    cut: str | None = None


class ArchitectureSearch(engine.SharedSearch):
    """A search for a shape that is checked and planned.

    Shapes are compared by a loss on held-out text, which is the same for all shapes:

    - `hidden` is the hidden-state loss of the comparative study (arXiv 2310.08797, equation 6) at the last layers,
      under the linear map that fits best, as a share of the variance of the teacher's hidden states.
    - `relations` is the mean divergence of query-query, key-key and value-value relations (MiniLMv2 section 3.1).
    - `vectors` takes the place of both where no teacher is loaded, as with stored outputs. It is the share of the
      variance of the teacher's sentence vectors that the best linear map of the student's leaves unexplained.
    - `hidden_states`, if the request asks for it, is equation 6 as printed: the sum over the layers that the method
      teaches, or the loss of the last layer where it teaches no hidden states.

    All but the last are divided by the loss of an untrained student, the same for all shapes: 0 is a student that
    equals its teacher, and about 1 a student that has not learned.

    Attributes:
        space: The shapes.
        plan: The plan of the run with one of the shapes, which stands for all in what they share.
        latency: The setting of latency measurements.
        loss: `hidden`, `relations`, `vectors` or `hidden_states`.
        cuts: The steps after which shapes may be cut.
    """

    kind = "architecture"
    # The recipe's own shape is no part of the study's identity, since each trial has another.
    searched = r"student\.shape"
    # A sampler of Optuna does not know that a shape was lost with its worker.
    queues_again = True
    request: ArchitectureRequest
    # These are set by `load`: `_taught_vectors` for the loss `vectors`, and `_last_layers` for every other. A loss is
    # divided by `_loss_unit`.
    _measure_latency: LatencyBench
    _last_layers: LastLayers
    _taught_vectors: TaughtVectors
    _loss_unit: float

    def __init__(self, request: ArchitectureRequest) -> None:
        super().__init__(request)
        _check_values(request)
        check_has_teacher_model(request.proxy.recipe)
        self.space = shape_space.divide_shapes(request.proxy.proxy_recipe, request.sizes)
        shape_space.check_some_small_enough(request.limits, self.space.shapes.values())
        # Candidates differ only in their shape, so the plan of any shape has what they share.
        self.plan = next(iter(self.space.shapes.values())).plan
        check_text_only(self.plan)
        self.latency = LatencySetting.of(request.measuring, self.plan.teacher)
        self.loss = loss_name(self.plan) if request.loss == "normalised" else request.loss
        if self.loss == "hidden_states":
            check_has_layers(self.plan, "--loss hidden_states")
        # The steps at which worse shapes are cut: dropped from training.
        self.cuts: list[int] = []
        if request.prune:
            steps = steps_of_only_stage(self.plan, "--no-prune")
            steps_of_cuts = {round(share * steps) for share in CUT_SHARES}
            # In a short training a cut may fall on its beginning or its end, where there is nothing to decide.
            self.cuts = sorted(steps_of_cuts - {0, steps})

    def identity(self) -> dict[str, Any]:
        """Return the settings that rewards depend on beside those of the run, by dotted names.

        A study is continued only by a search that has the same ones.
        """
        # Sentence vectors are compared on texts, and layers on blocks of tokens.
        loss_blocks = TEXTS if self.loss == "vectors" else LOSS_BLOCKS
        values = {
            "space": {**asdict(self.space.sizes), "embedding": self.plan.blueprint.embedding},
            "limit": asdict(self.request.limits),
            "latency": self.latency.identity,
            "loss": self.loss,
            "loss.blocks": loss_blocks,
        }
        return records.flat(values)

    def sampler(self) -> BaseSampler:
        """Return the sampler that is asked for."""
        request = self.request
        return make_sampler(request.sampler, self.plan.recipe.seed, self.space, request.episode)

    def check_text(self) -> None:
        """Refuse too little held-out text."""
        if self.loss == "vectors":
            self._open_vectors()
        else:
            loss_batches(self.proxy)

    def open(self) -> Study:
        """Open the study, or make it; under a limit of latency it begins with the shape that is likely the fastest."""
        request = self.request.proxy
        is_new = request.name not in get_all_study_names(open_storage(request.place))
        first_trial = None
        if is_new and self.request.limits.latency_share is not None:
            # If no shape is within the limit, this raises before the study is made, whose identity holds the limit.
            first_trial = self._first_trial()
        study = super().open()
        # A shape is cut if its reward is below the median of all shapes that any worker trained to the same step.
        # Successive halving would compare the shapes of one batch only, and cut some of a batch in which all are good.
        study.pruner = MedianPruner(n_startup_trials=COMPLETE_BEFORE_CUTS)
        if first_trial is not None:
            study.enqueue_trial(**first_trial)
        return study

    def _first_trial(self) -> dict[str, Any]:
        """Measure the shape that is least likely to be too slow, and return it as a trial to begin with.

        Returns:
            Arguments of `enqueue_trial`. The latency is an attribute of the trial, so that it is not measured again.

        Raises:
            RecipeError: if even that shape is over the limit.
        """
        limits = self.request.limits
        shapes = self.space.shapes.values()
        small_enough = [shape for shape in shapes if shape_space.refuse_parameters(limits, shape) is None]
        fastest = min(small_enough, key=_depth_and_widths)
        measure = LatencyBench(self._timed_teacher(), self.latency)
        latency = measure(fastest.plan.student_config)
        if shape_space.refuse_latency(limits, latency.share) is not None:
            raise RecipeError(
                f"No shape is within --max-latency-share {limits.latency_share:g}: the smallest, {fastest.point}, "
                f"takes {latency.share:.3f} of the teacher's {latency.teacher_ms:.1f} ms; raise the limit, or list "
                "smaller sizes."
            )
        return {"params": fastest.point._asdict(), "user_attrs": {LATENCY: asdict(latency)}}

    def announce(self, study: Study) -> None:
        """Print how many shapes there are, and how many are to be trained."""
        request = self.request
        line = f"{len(self.space.shapes):,} shapes can be trained; {request.trials} will be"
        done = len(trained_trials(read_shapes(study)))
        if done > 0:
            line += f", {done} of them already trained"
        self.say(f"{line}; study '{request.proxy.name}' in {shown(request.proxy.place)}")

    def is_finished(self, study: Study) -> bool:
        """Return whether as many shapes are trained as were asked for, or all that there are."""
        log = read_shapes(study)
        if len(trained_trials(log)) >= self.request.trials:
            return True
        return not log.running and not self._open_shapes(log)

    def _open_shapes(self, log: TrialLog[ShapePoint]) -> list[ShapePoint]:
        """Return the shapes that are small enough, and that no worker has tried or has."""
        limits = self.request.limits
        points = []
        for point, shape in self.space.shapes.items():
            is_taken = point in log.done or point in log.running
            if not is_taken and shape_space.refuse_parameters(limits, shape) is None:
                points.append(point)
        return points

    def load(self, study: Study) -> None:
        """Prepare the measurements of latencies and losses, and measure the untrained loss if the study lacks it."""
        if self.loss == "vectors":
            self._taught_vectors = self._open_vectors()
            timed_teacher = self._timed_teacher()
        else:
            proxy = self.proxy
            device = devices.choose_device("auto")
            teacher = proxy.load_teacher().to(device).eval()
            shapes = [shape.plan.student for shape in self.space.shapes.values()]
            self._last_layers = LastLayers(teacher, loss_batches(proxy), shapes)
            # The bench moves its teacher to the device on which latencies are measured. If losses are computed on
            # another device, the bench needs a teacher of its own.
            timed_teacher = teacher if self.latency.device == device else proxy.load_teacher()
        self._measure_latency = LatencyBench(timed_teacher, self.latency)

        # The first worker measures it for all, with the losses that were prepared above.
        if UNTRAINED_LOSS not in study.user_attrs:
            study.set_user_attr(UNTRAINED_LOSS, self._untrained_loss())
        # All losses but `hidden_states` are shares of the loss of an untrained student.
        self._loss_unit = 1.0
        if self.loss != "hidden_states":
            self._loss_unit = float(study.user_attrs[UNTRAINED_LOSS])

    def _open_vectors(self) -> TaughtVectors:
        """Read what is known of the teacher's vectors of held-out text, for the loss `vectors`."""
        teaching = self.plan.teacher_info.teaching
        assert teaching is not None  # Otherwise a model is read, whose layers are compared.
        proxy = self.proxy
        device = devices.choose_device("auto")
        return TaughtVectors(teaching, proxy.corpora[0], proxy.tokenizer, device=device)

    def _timed_teacher(self) -> PreTrainedModel:
        """Return a whole model of the teacher's shape, with which latencies are compared."""
        teacher = self.plan.teacher_info
        if teacher.has_weights:
            return self.proxy.load_teacher()
        # A latency does not depend on the weights, and stored outputs have their teacher's configuration.
        return build_student(teacher.config, seed=0)

    def _untrained_loss(self) -> float:
        """Return the loss of the smallest student before any training.

        Raises:
            TrainingError: for a loss of 0 or one that is not finite, by which no other can be divided.
        """
        smallest = min(self.space.shapes.values(), key=lambda shape: shape.parameters)
        plan = smallest.plan
        load_source = partial(self.proxy.load_teacher, plan.student_plan.source)
        student, _ = make_student(plan.student_plan, load_source, seed=plan.recipe.seed)
        loss = self._loss(student, plan)
        if not (math.isfinite(loss) and loss > 0):
            raise TrainingError(
                f"An untrained student has the loss {loss}, by which no other loss can be divided; check the recipe."
            )
        return loss

    def _loss(self, student: PreTrainedModel, plan: RunPlan) -> float:
        """Return the loss of a student, not yet divided by the untrained loss.

        Most losses are the share of the variance of the teacher's sentence vectors, or of its last hidden states, that
        a linear map of the student's does not explain. `relations` is a divergence of attention relations, and
        `hidden_states` a sum of squared errors over the taught layers.

        Args:
            student: A model without the taps of a training; it is moved to the device on which losses are measured.
            plan: The plan of its run.
        """
        if self.loss == "vectors":
            pooling, _ = plan.stages[-1].sentence_heads()
            return self._taught_vectors.unexplained(student.to(self._taught_vectors.device), pooling)
        student = student.to(self._last_layers.device)
        if self.loss == "hidden_states":
            return self._last_layers.hidden_states_loss(student, taught_layers(plan))
        figures = self._last_layers.compare(student)
        if self.loss == "relations":
            return figures.divergence
        assert figures.explained is not None  # `loss_batches` gives as many batches as the fit of the map needs.
        return 1 - figures.explained

    def propose(self, study: Study, ask: Ask) -> list[ShapeCandidate]:
        """Take shapes to train from the sampler; end the trials of shapes that are known or refused without training.

        Two workers that propose the same shape in the same instant may both train it, which costs only time.
        """
        # The *log* has the study's trials by shape: finished ones, and those that are running now.
        log = read_shapes(study)
        missing = self.request.trials - len(trained_trials(log)) - len(log.running)
        count = min(self.request.batch, missing)
        candidates: list[ShapeCandidate] = []
        trials_asked = 0
        # Proposals of known shapes since the last time that a shape was queued.
        repeats = 0
        while len(candidates) < count:
            # Each proposal, and each other worker, may have changed the study.
            log = read_shapes(study)
            open_points = self._open_shapes(log)
            if not open_points:
                break
            if repeats >= MOST_REPEATS:
                # The sampler is stuck. An open shape is drawn at random and queued, and the next trial gets it.
                generator = np.random.default_rng([self.plan.recipe.seed, trials_asked, len(log.done)])
                drawn_point = open_points[generator.integers(len(open_points))]
                study.enqueue_trial(drawn_point._asdict())
                repeats = 0

            trial = ask()
            trials_asked += 1
            point = self._suggest(trial)
            earlier_trial = _earlier_trial(log, point)
            if earlier_trial is not None:
                # Samplers and pruners ignore failed trials, so that a shape counts once however often it is proposed.
                trial.set_user_attr(SAME_AS, earlier_trial)
                study.tell(trial, state=TrialState.FAIL)
                repeats += 1
                continue
            # A shape that is refused is no repetition: its trial has told the sampler something.
            candidate = self._screen(study, trial, point)
            if candidate is not None:
                candidates.append(candidate)
        return candidates

    def _suggest(self, trial: Trial) -> ShapePoint:
        """Have the sampler propose a shape, and write it into the trial."""
        sizes = {}
        for name, choices in asdict(self.space.sizes).items():
            sizes[name] = trial.suggest_categorical(name, choices)
        point = ShapePoint(**sizes)
        trial.set_user_attr(SHAPE, str(point))
        return point

    def _screen(self, study: Study, trial: Trial, point: ShapePoint) -> ShapeCandidate | None:
        """Return a candidate; None for a shape that cannot be trained or is beyond a limit, whose trial is ended."""
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
        # The latency is measured last, since that takes seconds.
        latency = self._latency(study, shape)
        trial.set_user_attr(LATENCY, asdict(latency))
        reason = shape_space.refuse_latency(limits, latency.share)
        if reason is not None:
            _refuse(study, trial, reason)
            return None
        return ShapeCandidate(shape, latency, trial)

    def _latency(self, study: Study, shape: KnownShape) -> ShapeLatency:
        """Return the latency of a shape; a trial of the study may have measured it before."""
        for trial in study.get_trials(deepcopy=False):
            if point_of(trial) == shape.point:
                latency = latency_of(trial)
                if latency is not None:
                    return latency
        return self._measure_latency(shape.plan.student_config)

    def plan_of(self, candidate: ShapeCandidate) -> RunPlan:
        """Return the plan of the run with the candidate's shape."""
        return candidate.shape.plan

    def cuts_of(self, candidates: Sequence[ShapeCandidate]) -> Mapping[int, Cut]:
        """Cut the shapes whose reward at some steps is below the median of the others."""
        return {step: partial(self._cut, candidates, step) for step in self.cuts}

    def _cut(
        self, candidates: Sequence[ShapeCandidate], step: int, students: Mapping[int, PreTrainedModel]
    ) -> Collection[int]:
        """Report the rewards of the shapes in training to their trials, and cut the worse ones.

        Args:
            candidates: All candidates; `cut` is set for those that are cut.
            step: The step after which they are measured.
            students: The students that are still in training, by the index of their candidate.

        Returns:
            The indices of the candidates that go on.
        """
        for index, student in students.items():
            candidate = candidates[index]
            plan = candidate.shape.plan
            loss = self._loss(plain_copy(student, plan), plan) / self._loss_unit
            if not math.isfinite(loss):
                # The candidate goes on: at the end of the training it is found to have diverged.
                continue
            # Latencies are in units of the teacher's.
            reward = shape_reward(loss, candidate.latency.share, teacher_latency=1.0)
            try:
                candidate.trial.report(reward, step)
                if candidate.trial.should_prune():
                    candidate.cut = f"after {step} steps its reward {reward:.3f} was below the median of the others"
            except UpdateFinishedTrialError:
                candidate.cut = "this worker was taken for dead, and another one now trains the shape"
        return [index for index in students if candidates[index].cut is None]

    def score(self, candidate: ShapeCandidate, trained: Trained) -> tuple[Outcome, str]:
        """Return the outcome of a shape, with its reward if it was trained to the end, and a line about it to print."""
        notes: dict[str, Any] = {STEPS: trained.steps}
        size = f"{candidate.shape.parameters:,} parameters"
        title = f"{candidate.shape.point} ({size}, {candidate.latency.share:.3f} of the teacher's latency)"
        # An outcome without a value is one of a shape that diverged or was cut.
        if trained.diverged:
            return Outcome(notes=notes), f"{title}: diverged"
        if candidate.cut is not None:
            notes[CUT] = candidate.cut
            return Outcome(notes=notes, cut=True), f"{title}: cut: {candidate.cut}"

        loss = self._loss(trained.student, candidate.shape.plan) / self._loss_unit
        if not math.isfinite(loss):
            return Outcome(notes=notes), f"{title}: diverged"
        notes[LOSS] = loss
        # Latencies are in units of the teacher's.
        reward = shape_reward(loss, candidate.latency.share, teacher_latency=1.0)
        return Outcome(reward, notes), f"{title}: loss {loss:.4f}, reward {reward:.4f}"

    def progress(self, study: Study) -> tuple[float, str, Count]:
        """Return the share of the shapes that are trained, the same in words, and their number."""
        done = len(trained_trials(read_shapes(study)))
        trials = self.request.trials
        return min(1.0, done / trials), f"{done} of {trials} shapes", Count(done, "shapes")

    def results(self, study: Study) -> dict[str, Any]:
        """Return all shapes, the best, the front of loss and latency, and the recipe with the best, for the record.

        Raises:
            TrainingError: if no shape came to a loss; the study is kept.
        """
        request = self.request
        plan = self.plan
        trials = read_shapes(study).done
        shapes = [shape_row(point, trial) for point, trial in trials.items()]
        best, front = best_and_front(shapes)
        if best is None:
            raise TrainingError(_nothing_trained(shapes, shown(request.proxy.place)))
        best_point = next(point for point, trial in trials.items() if trial.number == best.trial)
        latencies = [shape.teacher_ms for shape in shapes if shape.state == "trained" and shape.teacher_ms is not None]
        # Only the sampler `kd_nas` has episodes, of one shape by default.
        episode = None
        if request.sampler == "kd_nas":
            episode = 1 if request.episode is None else request.episode
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
            "episode": episode,
            "cuts": self.cuts,
            "shapes": shapes,
            "best": best,
            "front": front,
            "recipe": shape_space.with_shape(request.proxy.recipe, best_point),
            "cost": _cost(study.get_trials(deepcopy=False), shapes),
        }


def best_and_front(shapes: Sequence[SearchedShape]) -> tuple[SearchedShape | None, list[int]]:
    """Return the trained shape of the best reward, and the trials on the front of loss and latency (`pareto_front`)."""
    trained = [shape for shape in shapes if shape.state == "trained"]

    def reward_or_lowest(shape: SearchedShape) -> float:
        return -math.inf if shape.reward is None else shape.reward

    best = max(trained, key=reward_or_lowest, default=None)
    # A trained shape has a loss and a latency.
    costs = [(shape.loss or 0.0, shape.latency_share or 0.0) for shape in trained]
    front = [trained[index].trial for index in pareto_front(costs)]
    return best, front


def _check_values(request: ArchitectureRequest) -> None:
    """Refuse a limit that is no share, and an unknown loss.

    Raises:
        RecipeError: naming the option.
    """
    share = request.limits.latency_share
    if share is not None and not share > 0:  # NaN too.
        raise RecipeError(
            f"--max-latency-share {share:g} must be a share of the teacher's latency; give a number above 0, such "
            "as 0.5."
        )
    losses = get_args(ShapeLoss)
    if request.loss not in losses:
        raise RecipeError(f"Unknown loss '{request.loss}'.{suggestion(request.loss, losses)}")


def _depth_and_widths(shape: KnownShape) -> tuple[float, ...]:
    """Return the sizes of a shape, sorted by their influence on its latency, the strongest first."""
    point = shape.point
    return point.layers, point.hidden, point.ffn, point.heads


def _earlier_trial(log: TrialLog[ShapePoint], point: ShapePoint) -> int | None:
    """Return the number of the trial that settled a shape, or evaluates it now; None if the shape is new."""
    if point in log.done:
        return log.done[point].number
    return log.running.get(point)


def _refuse(study: Study, trial: Trial, reason: str) -> None:
    """End the trial of a shape that is not to be trained."""
    trial.set_user_attr(REFUSED, reason)
    study.tell(trial, state=TrialState.PRUNED)


def _cost(trials: Sequence[FrozenTrial], shapes: Sequence[SearchedShape]) -> dict[str, Any]:
    """Return the costs of a search: the numbers of shapes by state and of lost trials, and the time of the training."""
    states = [shape.state for shape in shapes]
    cost: dict[str, Any] = {state: states.count(state) for state in ("trained", "cut", "diverged", "refused")}
    failed = [trial for trial in trials if trial.state == TrialState.FAIL and SAME_AS not in trial.user_attrs]
    # Trials of shapes that diverged failed too; the others were lost with their worker.
    cost["failed"] = len(failed) - cost["diverged"]
    cost["training_seconds"] = round(sum(trial.user_attrs.get(TRAINING_SECONDS, 0.0) for trial in trials), 1)
    return cost


def _nothing_trained(shapes: Sequence[SearchedShape], place: str) -> str:
    """Return the message of a search in which no shape was trained to the end.

    Args:
        shapes: The shapes that were tried.
        place: The storage of the study, for the message.
    """
    # A latency is measured only where nothing else is wrong, so a refused shape that has one is too slow.
    refused = [shape for shape in shapes if shape.state == "refused"]
    slow_shares = [shape.latency_share for shape in refused if shape.latency_share is not None]
    all_are_too_slow = bool(shapes) and len(slow_shares) == len(shapes)
    if all_are_too_slow:
        return (
            f"No shape is within --max-latency-share: the fastest takes {min(slow_shares):.3f} of the teacher's "
            "latency; raise the limit, or list smaller sizes, under a new --name."
        )
    reasons = dict.fromkeys(shape.reason or "" for shape in shapes)
    return (
        f"No shape reached a loss: {', '.join(reasons)}; lower the learning rate, under a new --name. The trials are "
        f"kept in {place}."
    )
