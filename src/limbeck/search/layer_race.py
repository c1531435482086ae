"""Candidates racing under one teacher: trained side by side, scored at every rung, the lower ones dropped."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from transformers import PreTrainedModel

from limbeck.recipe.plan import RunPlan
from limbeck.search.halving import survivors
from limbeck.search.layer_rungs import LayerRung
from limbeck.search.layer_scores import score_of
from limbeck.search.plain_copy import plain_copy
from limbeck.training.proxy import Proxy

Measure: TypeAlias = Callable[[PreTrainedModel], dict[str, float]]
Report: TypeAlias = Callable[[int, int, dict[str, float]], None]
"""Is told a candidate's index, the step, and its scores."""


@dataclass
class Racer:
    """What became of one candidate.

    Args:
        scores: By step, the scores by name.
        steps: Steps that it trained.
        held_out: Its own loss and terms on held-out text at the end.
        diverged: Whether its training, or a score, came to no finite number.
        cut: Whether it was dropped at a rung.
    """

    scores: dict[int, dict[str, float]] = field(default_factory=dict)
    steps: int = 0
    held_out: dict[str, float] = field(default_factory=dict)
    diverged: bool = False
    cut: bool = False

    @property
    def state(self) -> str:
        """`trained`, `cut` or `diverged`."""
        return "diverged" if self.diverged else "cut" if self.cut else "trained"

    @property
    def last(self) -> tuple[int, float]:
        """The last step that it was scored at and its score there, the mean of all; NaN where there is none."""
        if not self.scores:
            return 0, math.nan
        step = max(self.scores)
        return step, score_of(self.scores[step])


def race(
    proxy: Proxy, plans: Sequence[RunPlan], rungs: Sequence[LayerRung], measure: Measure, report: Report
) -> list[Racer]:
    """Train candidates side by side; at the end of every round but the last the lower ones are dropped.

    Args:
        proxy: Trains them, all by one learning-rate schedule.
        plans: One for each candidate.
        rungs: The rounds; none, or a single one, scores all at the end.
        measure: Scores a student; more is better.
        report: Is told every score as soon as it is known.

    Returns:
        One for each candidate.

    Source:
        Successive halving: Jamieson and Talwalkar 2016 (arXiv 1502.07943), algorithm 1.
    """
    racers = [Racer() for _ in plans]

    def note(index: int, step: int, student: PreTrainedModel) -> None:
        racers[index].scores[step] = scores = measure(student)
        report(index, step, scores)

    def drop(step: int, left: int, students: Mapping[int, PreTrainedModel]) -> Collection[int]:
        for index, student in students.items():
            note(index, step, plain_copy(student, plans[index]))
        best = survivors({index: -racers[index].last[1] for index in students}, left)
        for index in students:
            racers[index].cut = index not in best
        return best

    cuts = {rung.end: partial(drop, rung.end, after.candidates) for rung, after in pairwise(rungs)}
    for index, (racer, found) in enumerate(zip(racers, proxy.train(plans, cuts=cuts), strict=True)):
        racer.steps, racer.held_out, racer.diverged = found.steps, found.held_out, found.diverged
        if racer.state == "trained":
            note(index, found.steps, found.student)
            racer.diverged = math.isnan(racer.last[1])
    return racers


def ranking(racers: Sequence[Racer]) -> list[int]:
    """Return the candidates' indices, best first: who came further, then who scored higher where it ended."""

    def key(index: int) -> tuple[bool, int, float]:
        step, score = racers[index].last
        return racers[index].diverged, -step, math.inf if math.isnan(score) else -score

    return sorted(range(len(racers)), key=key)
