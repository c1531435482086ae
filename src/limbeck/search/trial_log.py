"""The trials of a study by candidate: those that are settled, running or diverged."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from optuna.trial import FrozenTrial, TrialState

DIVERGED = "diverged"
"""User attribute of a failed trial whose candidate diverged: its worker is fine, so it is not retried without limit."""

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class TrialLog(Generic[Item]):
    """The trials of a study by candidate.

    Args:
        done: The first trial that settled each candidate.
        running: The first trial of each candidate that a worker has, or that waits.
        diverged: How often each candidate ended without a finite value.
    """

    done: Mapping[Item, FrozenTrial]
    running: Mapping[Item, int]
    diverged: Counter[Item]

    @property
    def values(self) -> dict[Item, float]:
        """The value of each candidate that has one."""
        return {candidate: trial.value for candidate, trial in self.done.items() if trial.value is not None}


def read_trials(
    trials: Iterable[FrozenTrial],
    candidate_of: Callable[[FrozenTrial], Item | None],
    settles: Callable[[FrozenTrial], bool],
) -> TrialLog[Item]:
    """Gather a study's trials by candidate.

    Args:
        trials: In the order of their numbers.
        candidate_of: Returns a trial's candidate; None where it has no whole one.
        settles: Whether nothing more is to be learned of a finished trial's candidate.
    """
    done: dict[Item, FrozenTrial] = {}
    running: dict[Item, int] = {}
    diverged: Counter[Item] = Counter()
    for trial in trials:
        candidate = candidate_of(trial)
        if candidate is None:
            continue
        if trial.state in (TrialState.RUNNING, TrialState.WAITING):
            running.setdefault(candidate, trial.number)
        elif settles(trial):
            done.setdefault(candidate, trial)
        elif trial.state == TrialState.COMPLETE or trial.user_attrs.get(DIVERGED):
            diverged[candidate] += 1
    return TrialLog(done, running, diverged)
