"""Training shapes side by side, and stopping those without hope."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from rich.console import Console
from transformers import PreTrainedModel

from limbeck.search.plain_copy import plain_copy
from limbeck.search.shape_loop import ShapeCandidate, ShapeOutcome
from limbeck.search.shape_trials import SECONDS
from limbeck.training.proxy import Proxy, Trained

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
