"""How a search that is not finished stands: who works on it, what its trials came to, its last sign of life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import psutil
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.report.page.plain_values import mapping, number, text
from limbeck.report.page.run_state import last_sign
from limbeck.search.shape_trials import SAME_AS
from limbeck.search.trials import DIVERGED
from limbeck.search.workers import BEAT_SECONDS, MISSED_BEATS, machine, worker_key

_SAME, _DIVERGED = "of shapes that were tried before", "diverged"
_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "begun",
    TrialState.WAITING: "waiting",
    TrialState.PRUNED: "ended early",
    TrialState.FAIL: "failed",
}
_SAME_PROCESS = 1.0  # Seconds between two readings of when a process was started.


def standing(study: Study, silent: float) -> tuple[tuple[str, str], ...]:
    """Say how a search stands, in the words of `limbeck status`.

    Args:
        study: Its study.
        silent: Seconds since its journal was last written; workers that live write a sign of life into it.

    Returns:
        Names and what they are; `Status` is `running`, `interrupted` if its workers ended, or `dead` if they are gone
        without a word.
    """
    signs = [sign for name, sign in study.user_attrs.items() if name.startswith(worker_key(""))]
    workers = Counter(_worker(sign, silent) for sign in signs)
    status = "running" if workers["at work"] else "dead" if workers["gone"] else "interrupted"
    trials = Counter(map(_came_to, study.get_trials(deepcopy=False)))
    pairs = (
        ("Status", status),
        ("Workers", _counted(workers, ("at work", "ended", "gone"))),
        ("Trials", _counted(trials, (*_STATES.values(), _DIVERGED, _SAME))),
        ("Last sign of life", last_sign(silent)),
    )
    return tuple((name, value) for name, value in pairs if value)


def _came_to(trial: FrozenTrial) -> str:
    if trial.state != TrialState.FAIL:
        return _STATES[trial.state]
    attributes = trial.user_attrs
    return _SAME if SAME_AS in attributes else _DIVERGED if attributes.get(DIVERGED) else _STATES[trial.state]


def _worker(sign: Any, silent: float) -> str:
    """Judge a worker by its process where this machine can see it, else by the age of the last sign of any."""
    if mapping(sign).get("ended"):
        return "ended"
    if text(sign, "machine") == machine():
        return "at work" if _process_lives(sign) else "gone"
    return "at work" if silent <= MISSED_BEATS * (number(sign, "interval") or BEAT_SECONDS) else "gone"


def _process_lives(sign: Mapping[str, Any]) -> bool:
    found, started = number(sign, "process"), number(sign, "started")
    try:
        process = psutil.Process(int(found)) if found is not None and found >= 0 else None
        if process is None or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) <= _SAME_PROCESS
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.AccessDenied:
        return True


def _counted(counts: Counter[str], order: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])
