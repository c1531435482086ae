"""Trials that are lost with their worker: they are failed, so that another worker tries their candidates again."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.search.worker_signs import BEAT_SECONDS, MISSED_BEATS, WORKER, is_dead, signs_of, worker_key


@dataclass(frozen=True)
class _SeenBeat:
    """The last beat of a trial's worker, and when this watcher first saw it.

    Attributes:
        beat: Its number; None for a trial without a worker's name.
        since: Seconds of the watcher's clock.
    """

    beat: int | None
    since: float


class LostTrials:
    """Watches a study for running trials whose worker is dead, and fails them.

    Args:
        study: The study.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._seen: dict[int, _SeenBeat] = {}

    def fail(self, watcher: str | None = None) -> list[FrozenTrial]:
        """Fail the trials that are lost by now, and return them as they were.

        A worker that only seemed dead cannot tell their values any more. Where several watch, a trial is in the list of
        the one whose call failed it, and in no other.

        Args:
            watcher: The worker that looks, if it is one; every trial that it has taken has its name.
        """
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        # Read after the trials: a worker gives a sign of life before it takes one.
        attributes = self._study.user_attrs
        signs = signs_of(attributes)
        other_signs = dict(signs)
        if watcher is not None:
            other_signs.pop(worker_key(watcher), None)
        others_are_dead = bool(signs) and all(is_dead(sign) for sign in other_signs.values())

        numbers = {trial.number for trial in running}
        self._seen = {number: beat for number, beat in self._seen.items() if number in numbers}
        lost = []
        for trial in running:
            sign = attributes.get(worker_key(trial.user_attrs.get(WORKER, "")))
            # The worker of a trial without a name is one of the others, or died before it could write its name.
            has_no_worker = sign is None and others_are_dead
            if has_no_worker or self._is_lost(trial.number, sign):
                # Another watcher may be first.
                with suppress(UpdateFinishedTrialError, ValueError):
                    self._study.tell(trial.number, state=TrialState.FAIL)
                    lost.append(trial)
        return lost

    def _is_lost(self, number: int, sign: dict[str, Any] | None) -> bool:
        """Whether the worker of a trial is dead, given its sign of life.

        A trial has no sign if its worker was killed before it could write its name. Where others live, nobody knows
        whether it is one of theirs, so that it is waited for like any other.
        """
        if sign is not None and is_dead(sign):
            return True
        beat: int | None = None
        interval = BEAT_SECONDS
        if sign is not None:
            beat = sign["beat"]
            interval = float(sign["interval"])
        now = time.monotonic()
        seen = self._seen.get(number)
        if seen is None or seen.beat != beat:
            self._seen[number] = _SeenBeat(beat, since=now)
            return False
        return now - seen.since > MISSED_BEATS * interval
