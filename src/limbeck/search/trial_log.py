"""The trials of a study by candidate: those that are settled, running or diverged.

A *candidate* is what a search tries: a layer mapping, or a student's shape. Several trials may have the same candidate.
It is *settled* when it needs no further trial. It has *diverged* in a trial whose value is not finite.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from optuna.trial import FrozenTrial, TrialState

DIVERGED = "diverged"
"""User attribute of a trial that failed because its candidate diverged, and not because its worker was lost."""

Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True)
class TrialLog(Generic[Candidate]):
    """The trials of a study by candidate.

    Args:
        done: The first trial that settled each candidate.
        running: The number of the first trial of each candidate that a worker evaluates, or that is queued.
        diverged: The number of trials in which each candidate diverged.
    """

    done: Mapping[Candidate, FrozenTrial]
    running: Mapping[Candidate, int]
    diverged: Counter[Candidate]

    @property
    def values(self) -> dict[Candidate, float]:
        """The value of each candidate that has one."""
        return {candidate: trial.value for candidate, trial in self.done.items() if trial.value is not None}


def read_trials(
    trials: Iterable[FrozenTrial],
    candidate_of: Callable[[FrozenTrial], Candidate | None],
    settles: Callable[[FrozenTrial], bool],
) -> TrialLog[Candidate]:
    """Gather a study's trials by candidate.

    Args:
        trials: The trials, in the order of their numbers.
        candidate_of: Returns a trial's candidate; None where its parameters are not all chosen, or are illegal.
        settles: Returns whether a finished trial settles its candidate, which then needs no other trial.

    Returns:
        By candidate: the trial that settled it (`done`), the number of an unfinished trial (`running`), and the number
        of trials in which it diverged.
    """
    done: dict[Candidate, FrozenTrial] = {}
    running: dict[Candidate, int] = {}
    diverged: Counter[Candidate] = Counter()
    for trial in trials:
        candidate = candidate_of(trial)
        if candidate is None:
            continue
        # Of several trials with the same candidate the first counts.
        if trial.state in (TrialState.RUNNING, TrialState.WAITING):
            running.setdefault(candidate, trial.number)
        elif settles(trial):
            done.setdefault(candidate, trial)
        # Of the other trials only those count that diverged. The rest failed with their worker, or were ended early.
        elif trial.state == TrialState.COMPLETE or trial.user_attrs.get(DIVERGED):
            diverged[candidate] += 1
    return TrialLog(done, running, diverged)


def parameters_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the parameters of a trial; of a queued trial those that it is going to have."""
    if trial.params:
        return trial.params
    # Optuna keeps the parameters of a queued trial here until a worker takes it.
    queued: dict[str, Any] = trial.system_attrs.get("fixed_params", {})
    return queued
