"""Training shapes side by side, and stopping those without hope."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from rich.console import Console
from transformers import PreTrainedModel

from limbeck.search.scores import plain_copy
from limbeck.search.shape_latency import MeasureLatency, ShapeLatency
from limbeck.search.shape_space import KnownShape, ShapeLimits, ShapePoint, ShapeSizes, ShapeSpace, shape_reward
from limbeck.search.trials import DIVERGED
from limbeck.search.workers import BEAT_SECONDS, WORKER, LostTrials, SignOfLife
from limbeck.training.proxy import Proxy, Trained

# Student shapes as the parameters of Optuna's trials, and what a study's trials say about shapes.


SHAPE = "shape"
PARAMETERS = "parameters"
LATENCY = "latency"
LOSS = "loss"
STEPS = "steps"
SECONDS = "training_seconds"
"""User attribute of a trial: its part of the time that the shapes which were trained together took."""
REFUSED = "refused"
"""User attribute of a pruned trial: why the shape cost no training."""
CUT = "cut"
"""User attribute of a pruned trial: why its training was not finished."""
SAME_AS = "same_as"
"""User attribute of a trial whose shape an earlier one has: that one's number."""


def suggest_shape(trial: Trial, sizes: ShapeSizes) -> ShapePoint:
    """Have the study's sampler propose a shape, and write it into the trial."""
    chosen = {name: trial.suggest_categorical(name, known.choices) for name, known in sizes.distributions.items()}
    point = ShapePoint(**chosen)  # type: ignore[arg-type]
    trial.set_user_attr(SHAPE, str(point))
    return point


def point_of(trial: FrozenTrial) -> ShapePoint | None:
    """Return the shape of a trial; none if it has no whole one yet."""
    if not all(name in trial.params for name in ShapePoint._fields):
        return None
    return ShapePoint(**{name: trial.params[name] for name in ShapePoint._fields})


def note_latency(trial: Trial, latency: ShapeLatency) -> None:
    """Keep a latency in the trial that it was measured for."""
    trial.set_user_attr(LATENCY, asdict(latency))


def latency_of(trial: FrozenTrial | Trial) -> ShapeLatency | None:
    """Return the latency that was measured for a trial."""
    found = trial.user_attrs.get(LATENCY)
    return None if found is None else ShapeLatency(**found)


@dataclass(frozen=True)
class ShapeLedger:
    """What a study's trials say about shapes.

    Args:
        settled: The trial that settled each shape: it was trained, cut, diverged or refused.
        held: The running trial of each shape that a worker has, the first if several have it.
        latencies: What was measured of each shape, also where the trial was lost since.
    """

    settled: Mapping[ShapePoint, FrozenTrial]
    held: Mapping[ShapePoint, int]
    latencies: Mapping[ShapePoint, ShapeLatency]

    @property
    def trained(self) -> list[FrozenTrial]:
        """The trials that cost training, in the order of their numbers."""
        return [trial for trial in self.settled.values() if REFUSED not in trial.user_attrs]


def read_shapes(trials: Iterable[FrozenTrial]) -> ShapeLedger:
    """Gather what a study's trials, in the order of their numbers, say about shapes."""
    settled: dict[ShapePoint, FrozenTrial] = {}
    held: dict[ShapePoint, int] = {}
    latencies: dict[ShapePoint, ShapeLatency] = {}
    for trial in trials:
        point = point_of(trial)
        if point is None:
            continue
        if (latency := latency_of(trial)) is not None:
            latencies.setdefault(point, latency)
        if trial.state == TrialState.RUNNING:
            held.setdefault(point, trial.number)
        elif SAME_AS not in trial.user_attrs and _is_settled(trial):
            settled.setdefault(point, trial)
    return ShapeLedger(settled, held, latencies)


def _is_settled(trial: FrozenTrial) -> bool:
    """Whether nothing more is to be learned of a trial's shape; one that was lost or interrupted is open again."""
    if trial.state == TrialState.FAIL:
        return bool(trial.user_attrs.get(DIVERGED))
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


# The loop of one worker that searches shapes: propose, refuse what is beyond a limit, train the others, tell.


POLL_SECONDS = 1.0
MOST_REPEATS = 3
"""So many proposals in a row that are known already, before one that is new is drawn at random."""


@dataclass(frozen=True)
class ShapeCandidate:
    """A shape to train.

    Args:
        shape: The shape.
        latency: What was measured of it.
        trial: Its trial, for intermediate rewards.
    """

    shape: KnownShape
    latency: ShapeLatency
    trial: Trial

    def reward(self, loss: float) -> float:
        """Return equation 12 for a loss of this shape."""
        return shape_reward(loss, self.latency.share, 1.0)


@dataclass(frozen=True)
class ShapeOutcome:
    """What training a shape came to.

    Args:
        loss: On held-out text; None where the training was cut or diverged.
        steps: Steps it trained.
        cut: Why it was cut, or None.
    """

    loss: float | None
    steps: int
    cut: str | None = None


TrainShapes: TypeAlias = Callable[[Sequence[ShapeCandidate]], Iterable[ShapeOutcome]]


@dataclass(frozen=True)
class ShapeSearch:
    """What a search of shapes tries and how it judges.

    Args:
        space: The shapes.
        limits: Their limits.
        measure: Measures a latency.
        train: Trains up to `batch` shapes at once; each outcome is told to the study before the next is asked for.
        trials: Shapes to train in all, by all workers; those beyond a limit do not count.
        batch: Shapes that a worker trains at once.
        seed: Of the shapes that are drawn where the sampler repeats itself.
    """

    space: ShapeSpace
    limits: ShapeLimits
    measure: MeasureLatency
    train: TrainShapes
    trials: int
    batch: int
    seed: int = 0


def run_shape_search(
    study: Study, search: ShapeSearch, *, beat_seconds: float = BEAT_SECONDS, poll_seconds: float = POLL_SECONDS
) -> None:
    """Work on a study until as many shapes are trained as were asked for, or none is left.

    Any number of workers may do so at once; two that propose the same shape in the same instant may both train it, at
    the cost of the time. If training raises, or the program is interrupted, or a worker is killed, the trials that it
    had fail and their shapes are queued again.
    """
    lost = LostTrials(study)
    with SignOfLife(study, beat_seconds) as life:
        while True:
            _queue_again(study, lost.fail(life.worker))
            ledger = read_shapes(study.get_trials(deepcopy=False))
            if is_finished(search.space, search.limits, ledger, search.trials):
                return
            count = min(search.batch, search.trials - len(ledger.trained) - len(ledger.held))
            if not _work(study, search, life.worker, count):
                time.sleep(poll_seconds)


def open_shapes(space: ShapeSpace, limits: ShapeLimits, ledger: ShapeLedger) -> list[ShapePoint]:
    """Return the shapes that nothing is known against, and that no worker has."""
    return [
        point
        for point, shape in space.shapes.items()
        if point not in ledger.settled and point not in ledger.held and not limits.refuse_parameters(shape)
    ]


def is_finished(space: ShapeSpace, limits: ShapeLimits, ledger: ShapeLedger, trials: int) -> bool:
    """Return whether so many shapes are trained, or all that there are."""
    return len(ledger.trained) >= trials or not (ledger.held or open_shapes(space, limits, ledger))


def _work(study: Study, search: ShapeSearch, worker: str, count: int) -> bool:
    """Take shapes and train them; return whether there was anything to do."""
    asked: list[Trial] = []
    try:
        taken = _take(study, search, worker, count, asked)
        if taken:
            for candidate, outcome in zip(taken, search.train(taken), strict=True):
                _tell(study, candidate, outcome)
    except BaseException:
        _give_back(study, asked)
        raise
    return bool(asked)


def _take(study: Study, search: ShapeSearch, worker: str, count: int, asked: list[Trial]) -> list[ShapeCandidate]:
    taken: list[ShapeCandidate] = []
    repeats = 0
    while len(taken) < count:
        ledger = read_shapes(study.get_trials(deepcopy=False))
        free = open_shapes(search.space, search.limits, ledger)
        if not free:
            break
        if repeats >= MOST_REPEATS:
            random = np.random.default_rng([search.seed, len(asked), len(ledger.settled)])
            study.enqueue_trial(free[random.integers(len(free))]._asdict())
            repeats = 0
        trial = study.ask()
        asked.append(trial)
        trial.set_user_attr(WORKER, worker)
        point = suggest_shape(trial, search.space.sizes)
        if _is_repeated(study, trial, point, ledger):
            repeats += 1
            continue
        candidate = _screen(study, search, trial, point, ledger)
        if candidate is not None:
            taken.append(candidate)
    return taken


def _is_repeated(study: Study, trial: Trial, point: ShapePoint, ledger: ShapeLedger) -> bool:
    """Give a trial up whose shape an earlier one has."""
    first = ledger.settled[point].number if point in ledger.settled else ledger.held.get(point)
    if first is None:
        return False
    # A failed trial is none to samplers and pruners, so that a shape counts once however often it is proposed.
    trial.set_user_attr(SAME_AS, first)
    study.tell(trial, state=TrialState.FAIL)
    return True


def _screen(
    study: Study, search: ShapeSearch, trial: Trial, point: ShapePoint, ledger: ShapeLedger
) -> ShapeCandidate | None:
    """Refuse a shape that cannot be trained or is beyond a limit, else make it a candidate."""
    shape = search.space.shapes.get(point)
    reason = search.space.impossible[point] if shape is None else search.limits.refuse_parameters(shape)
    if shape is not None:
        trial.set_user_attr(PARAMETERS, shape.parameters)
    if shape is not None and reason is None:
        latency = latency_of(trial) or ledger.latencies.get(point) or search.measure(shape.plan.student_config)
        note_latency(trial, latency)
        reason = search.limits.refuse_latency(latency.share)
        if reason is None:
            return ShapeCandidate(shape, latency, trial)
    trial.set_user_attr(REFUSED, reason)
    study.tell(trial, state=TrialState.PRUNED)
    return None


def _tell(study: Study, candidate: ShapeCandidate, outcome: ShapeOutcome) -> None:
    trial = candidate.trial
    # A worker that was taken for dead cannot tell any more: the shape went to another.
    with suppress(UpdateFinishedTrialError):
        trial.set_user_attr(STEPS, outcome.steps)
        if outcome.cut is not None:
            trial.set_user_attr(CUT, outcome.cut)
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        elif outcome.loss is None:
            trial.set_user_attr(DIVERGED, True)
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        else:
            trial.set_user_attr(LOSS, outcome.loss)
            study.tell(trial, candidate.reward(outcome.loss), skip_if_finished=True)


def _give_back(study: Study, asked: Sequence[Trial]) -> None:
    running = {trial.number: trial for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))}
    left = [running[trial.number] for trial in asked if trial.number in running]
    for trial in left:
        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    _queue_again(study, left)


def _queue_again(study: Study, lost: Sequence[FrozenTrial]) -> None:
    for trial in lost:
        if trial.params:
            study.enqueue_trial(trial.params)


Measure = Callable[[PreTrainedModel], float]

CUT_SHARES = (1 / 3, 2 / 3)
"""After these shares of the steps the shapes in training are measured."""
COMPLETE_BEFORE_CUTS = 5
"""Shapes that have to be trained to the end before any is cut."""


def shape_pruner() -> MedianPruner:
    """Return what decides which shapes go on: those whose reward is not below the median of all others so far.

    Successive halving would compare a shape with those of its own batch only. The study's intermediate rewards compare
    it with every shape that any worker trained to the same step, and a batch of good ones loses none.
    """
    return MedianPruner(n_startup_trials=COMPLETE_BEFORE_CUTS)


def cut_steps(steps: int) -> list[int]:
    """Return after how many of `steps` steps shapes are measured; none where there are too few to cut any."""
    found = {round(share * steps) for share in CUT_SHARES}
    return sorted(step for step in found if 0 < step < steps)


class ShapeTraining:
    """Trains shapes under one teacher and measures their losses; what `run_shape_search` calls.

    Args:
        proxy: Trains them.
        measure: Returns a student's loss, see `LastLayerLoss`.
        cuts: After how many steps shapes without hope are looked for.
        console: Where it is said what became of each.
    """

    def __init__(self, proxy: Proxy, measure: Measure, cuts: Sequence[int], console: Console) -> None:
        self._proxy = proxy
        self._measure = measure
        self._cuts = cuts
        self._console = console

    def __call__(self, candidates: Sequence[ShapeCandidate]) -> Iterator[ShapeOutcome]:
        """Train the shapes, all at once, and yield what each came to as soon as it is measured.

        A shape is shown only when the next is asked for, so that whoever tells the study has told it by then.
        """
        reasons: dict[int, str] = {}
        cuts = {step: partial(self._cut, candidates, reasons, step) for step in self._cuts}
        started = time.monotonic()
        trained = self._proxy.train([candidate.shape.plan for candidate in candidates], cuts=cuts)
        seconds = round((time.monotonic() - started) / len(candidates), 1)
        for index, (candidate, found) in enumerate(zip(candidates, trained, strict=True)):
            outcome = self._outcome(found, reasons.get(index))
            with suppress(UpdateFinishedTrialError):
                candidate.trial.set_user_attr(SECONDS, seconds)
            yield outcome
            self._say(candidate, outcome)

    def _cut(
        self,
        candidates: Sequence[ShapeCandidate],
        reasons: dict[int, str],
        step: int,
        students: Mapping[int, PreTrainedModel],
    ) -> Collection[int]:
        """Report the rewards of the shapes in training, and return which go on."""
        for index, student in students.items():
            candidate = candidates[index]
            loss = self._measure(plain_copy(student, candidate.shape.plan))
            if not math.isfinite(loss):
                continue  # The end of the training says whether it diverged.
            reward = candidate.reward(loss)
            try:
                candidate.trial.report(reward, step)
                hopeless = candidate.trial.should_prune()
            except UpdateFinishedTrialError:
                reasons[index] = "this worker was taken for dead, and another has the shape"
                continue
            if hopeless:
                reasons[index] = f"after {step} steps its reward {reward:.3f} was below the median of the others"
        return [index for index in students if index not in reasons]

    def _outcome(self, found: Trained, reason: str | None) -> ShapeOutcome:
        if found.diverged:
            return ShapeOutcome(None, found.steps)
        if reason is not None:
            return ShapeOutcome(None, found.steps, reason)
        loss = self._measure(found.student)
        return ShapeOutcome(loss if math.isfinite(loss) else None, found.steps)

    def _say(self, candidate: ShapeCandidate, outcome: ShapeOutcome) -> None:
        cost = f"{candidate.shape.parameters:,} parameters, {candidate.latency.share:.3f} of the teacher's latency"
        if outcome.cut is not None:
            result = f"cut: {outcome.cut}"
        elif outcome.loss is None:
            result = "diverged"
        else:
            result = f"loss {outcome.loss:.4f}, reward {candidate.reward(outcome.loss):.4f}"
        line = f"  {candidate.shape.point} ({cost}): {result}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)
