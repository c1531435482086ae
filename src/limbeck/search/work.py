"""The work of one worker on a study: it takes candidates, trains them, and writes their outcomes into the study.

A *candidate* is what a search tries, such as a layer mapping. A worker *takes* one by beginning a trial of the study,
and an *outcome* ends the trial. Other workers see both, and try a candidate again whose trial has failed.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.search.lost_trials import LostTrials
from limbeck.search.trial_log import DIVERGED
from limbeck.search.worker_signs import BEAT_SECONDS, WORKER, sign_of_life

TRAINING_SECONDS = "training_seconds"
"""User attribute of a trial: its equal part of the time of candidates that were trained together."""
POLL_SECONDS = 1.0
"""Seconds between looks at the trials of other workers."""

Ask: TypeAlias = Callable[[], Trial]
"""Begins a trial of the calling worker, and returns it."""


@dataclass(frozen=True)
class Outcome:
    """The end of a candidate's trial.

    Args:
        value: The trial's value; a candidate without a finite one has diverged, unless it was cut.
        notes: User attributes of the trial.
        cut: Whether its training was ended early, because others are better.
    """

    value: float = math.nan
    notes: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False


class Work(ABC):
    """The work of one worker on a study; a candidate is any object with an attribute `trial`.

    Attributes:
        queues_again: Whether the candidates of failed trials are queued, because the sampler would not propose them
            again.
    """

    queues_again = False

    @abstractmethod
    def is_finished(self, study: Study) -> bool:
        """Return whether the study has all outcomes that were asked for."""

    @abstractmethod
    def propose(self, study: Study, ask: Ask) -> Sequence[Any]:
        """Take candidates, each with a trial of `ask`; none where other workers have taken all that are left."""

    @abstractmethod
    def train(self, candidates: Sequence[Any]) -> Iterable[Outcome]:
        """Train candidates and yield their outcomes in order; each is in the study before the next is asked for."""


def work_on(
    study: Study, work: Work, *, beat_seconds: float = BEAT_SECONDS, poll_seconds: float = POLL_SECONDS
) -> None:
    """Work on a study until it is finished, beside any number of other workers.

    If training raises, or the program is interrupted, this worker's running trials fail, so that their candidates can
    be taken again. If it is killed, the other workers or the next run fail them.

    Args:
        study: The study.
        work: Proposes and trains candidates.
        beat_seconds: Seconds between the signs of life that this worker gives the others.
        poll_seconds: Seconds between looks at the other workers' trials, while there is nothing to take.
    """
    lost = LostTrials(study)
    with sign_of_life(study, beat_seconds) as worker:
        while True:
            # Trials of workers that were killed fail now, and their candidates are tried again.
            failed_trials = lost.fail(worker)
            _queue_again(study, work, failed_trials)
            if work.is_finished(study):
                return
            has_worked = _work_once(study, work, worker)
            if not has_worked:
                time.sleep(poll_seconds)


def _work_once(study: Study, work: Work, worker: str) -> bool:
    """Take candidates and train them; return whether a trial was begun."""
    # All trials that are begun here, also those that `propose` ends by itself. If training fails, they are failed too.
    trials: list[Trial] = []

    def ask() -> Trial:
        trial = study.ask()
        trials.append(trial)
        trial.set_user_attr(WORKER, worker)
        return trial

    try:
        candidates = work.propose(study, ask)
        if candidates:
            # `train` yields each outcome before it goes on with the next candidate.
            for candidate, outcome in zip(candidates, work.train(candidates), strict=True):
                _tell(study, candidate.trial, outcome)
    except BaseException:
        _fail_running(study, work, trials)
        raise
    return bool(trials)


def _fail_running(study: Study, work: Work, trials: Sequence[Trial]) -> None:
    """Fail those of a worker's trials that are still running, so that their candidates can be taken again."""
    running = {trial.number: trial for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))}
    unfinished = [running[trial.number] for trial in trials if trial.number in running]
    for trial in unfinished:
        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    _queue_again(study, work, unfinished)


def _queue_again(study: Study, work: Work, failed: Sequence[FrozenTrial]) -> None:
    """Queue the candidates of failed trials, where the sampler would not propose them again."""
    if not work.queues_again:
        return
    for trial in failed:
        if trial.params:
            study.enqueue_trial(trial.params)


def _tell(study: Study, trial: Trial, outcome: Outcome) -> None:
    """End a trial by its outcome: pruned for a candidate that was cut, failed for one that diverged, else complete."""
    # If the other workers took this one for dead, the trial has ended, and its candidate is tried by another.
    with suppress(UpdateFinishedTrialError):
        for name, value in outcome.notes.items():
            trial.set_user_attr(name, value)
        if outcome.cut:
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        elif math.isfinite(outcome.value):
            study.tell(trial, outcome.value, skip_if_finished=True)
        else:
            trial.set_user_attr(DIVERGED, True)
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
