"""The loop of one worker that searches shapes: propose, refuse what is beyond a limit, train the others, tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.search.reward import shape_reward
from limbeck.search.shape_latency import MeasureLatency, ShapeLatency
from limbeck.search.shape_limits import ShapeLimits
from limbeck.search.shape_space import KnownShape, ShapePoint, ShapeSpace
from limbeck.search.shape_trials import (
    CUT,
    LOSS,
    PARAMETERS,
    REFUSED,
    SAME_AS,
    STEPS,
    ShapeLedger,
    latency_of,
    note_latency,
    read_shapes,
    suggest_shape,
)
from limbeck.search.trials import DIVERGED
from limbeck.search.workers import BEAT_SECONDS, WORKER, LostTrials, SignOfLife

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
