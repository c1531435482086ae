"""Trials that are lost with their worker: they are failed, so that another worker tries their candidates again.

Every worker keeps a *sign of life* in the study, whose *beat* counts up; see `worker_signs.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
        self._seen_beat_by_trial: dict[int, _SeenBeat] = {}

    def fail(self, watcher: str | None = None) -> list[FrozenTrial]:
        """Fail the trials that are lost by now, and return them as they were.

        A worker that only seemed dead cannot end these trials any more. Where several workers watch, each lost trial is
        returned to one of them, whose call failed it.

        Args:
            watcher: The name of the worker that calls; None for a caller that is no worker.
        """
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        # Signs of life are read after the trials: a worker gives one before it takes a trial, so none is missing here.
        attributes = self._study.user_attrs
        others_are_dead = _others_are_dead(signs_of(attributes), watcher)

        # Beats of trials that have ended are forgotten.
        running_numbers = {trial.number for trial in running}
        for number in self._seen_beat_by_trial.keys() - running_numbers:
            del self._seen_beat_by_trial[number]

        lost = []
        for trial in running:
            worker = trial.user_attrs.get(WORKER)
            sign = None
            if worker is not None:
                sign = attributes.get(worker_key(worker))
            # The worker of a trial without a sign is about to write its name into the trial, or was killed before it
            # could. It is not the watcher, whose trials all have its name. So it is dead if all others are.
            worker_never_signed = sign is None and others_are_dead
            if worker_never_signed or self._is_lost(trial.number, sign):
                # Another watcher may have failed the trial first.
                with suppress(UpdateFinishedTrialError, ValueError):
                    self._study.tell(trial.number, state=TrialState.FAIL)
                    lost.append(trial)
        return lost

    def _is_lost(self, number: int, sign: dict[str, Any] | None) -> bool:
        """Return whether the worker of a trial is dead, and remember the beat that this watcher sees.

        A worker is dead if its sign says so, or if its beat has not changed for `MISSED_BEATS` intervals.

        Args:
            number: The trial's number.
            sign: The sign of life of its worker; None for a trial without a worker's name. A living worker may have
                just taken that trial, so the watcher waits for its name as long as for a beat.
        """
        if sign is not None and is_dead(sign):
            return True
        beat: int | None = None
        interval = BEAT_SECONDS
        if sign is not None:
            beat = sign["beat"]
            interval = float(sign["interval"])
        now = time.monotonic()
        seen = self._seen_beat_by_trial.get(number)
        has_changed = seen is None or seen.beat != beat
        if has_changed:
            self._seen_beat_by_trial[number] = _SeenBeat(beat, since=now)
            return False
        assert seen is not None
        return now - seen.since > MISSED_BEATS * interval


def _others_are_dead(signs: Mapping[str, Any], watcher: str | None) -> bool:
    """Whether all workers but the watcher are dead; not known, and so false, without any sign in the study.

    Args:
        signs: The signs of life of all workers, by the keys of their attributes.
        watcher: The name of the worker that asks; None for a caller that is no worker.
    """
    other_signs = dict(signs)
    if watcher is not None:
        other_signs.pop(worker_key(watcher), None)
    return bool(signs) and all(is_dead(sign) for sign in other_signs.values())
