"""Candidates of a search of teacher layers: the recipe that is searched for, reading another layer of its teacher."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import TypeAlias, TypeVar

from transformers import PreTrainedModel

from limbeck.errors import RecipeError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.schema import Recipe
from limbeck.search.scores import plain_copy, score_of
from limbeck.training.proxy import Proxy

OPTION = "teacher_layer"


def methods_with_teacher_layer() -> list[str]:
    """Return the methods that read one layer of the teacher, by number."""
    return [name for name, method in METHODS.items() if OPTION in method.options.model_fields]


def layer_stage(recipe: Recipe) -> int:
    """Return the stage whose teacher layer is searched, counted from 0.

    Raises:
        RecipeError: for a recipe with no such stage, or with several.
    """
    if not recipe.stages:
        raise RecipeError("The recipe has no stages, so no teacher layer is read; give it one.")
    known = methods_with_teacher_layer()
    found = [index for index, stage in enumerate(recipe.stages) if stage.method["name"] in known]
    if not found:
        used = " and ".join(dict.fromkeys(f"'{stage.method['name']}'" for stage in recipe.stages))
        raise RecipeError(f"{used} reads no teacher layer by number; methods that do are {', '.join(known)}.")
    if len(found) > 1:
        titles = ", ".join(recipe.stages[index].title for index in found)
        raise RecipeError(f"The stages {titles} each read a teacher layer; search one at a time, in its own recipe.")
    return found[0]


def with_teacher_layer(recipe: Recipe, layer: int) -> Recipe:
    """Return a recipe that reads another teacher layer; nothing else is changed."""
    return load_recipe(recipe, [f"stages.{layer_stage(recipe)}.method.{OPTION}={layer}"])


def choose_layers(layers: Sequence[int] | None, plan: RunPlan) -> tuple[int, ...]:
    """Return the candidates in order.

    Args:
        layers: What was asked for; None for all.
        plan: Of the recipe.

    Raises:
        RecipeError: for a layer that the teacher does not have, or fewer than two.
    """
    depth = plan.teacher.layers
    found = tuple(sorted(set(range(1, depth + 1) if layers is None else layers)))
    for layer in found:
        if not 1 <= layer <= depth:
            raise RecipeError(f"--layers names layer {layer}, but this teacher has layers 1 to {depth}; change it.")
    if len(found) < 2:
        raise RecipeError(
            f"{len(found)} candidate leaves nothing to choose; give --layers two or more of 1 to {depth}."
        )
    return found


# Successive halving: many candidates for a few steps, the better ones for more.
#
# Source: Jamieson and Talwalkar 2016 (arXiv 1502.07943), algorithm 1.


Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True)
class Rung:
    """One round: so many candidates train so many further steps each."""

    candidates: int
    steps: int


def halving_rungs(candidates: int, steps: int, factor: int = 2) -> list[Rung]:
    """Divide a budget of steps evenly over rounds that each keep a share of the candidates.

    Round 0 has all n candidates, round i has n_i = floor(n_(i-1) / factor), as long as that is more than one. With r
    rounds each candidate of round i trains floor(steps / (n_i r)) steps more. The best of the last round is the choice;
    it gets no round alone, as it does in the paper, since that could change nothing.

    Args:
        candidates: How many start, n.
        steps: Steps of all candidates and rounds together.
        factor: Of how many candidates one goes on, at least 2.

    Raises:
        RecipeError: for fewer than one candidate, a factor below 2, or a budget that leaves a candidate no step.
    """
    if candidates < 1:
        raise RecipeError(f"{candidates} candidates leave nothing to choose from; give at least 1.")
    if factor < 2:
        raise RecipeError(f"A halving factor of {factor} drops no candidate; give at least 2.")
    sizes = [candidates]
    while sizes[-1] // factor > 1:
        sizes.append(sizes[-1] // factor)
    rungs = [Rung(size, steps // (size * len(sizes))) for size in sizes]
    if rungs[0].steps < 1:
        raise RecipeError(
            f"{steps} steps for {candidates} candidates in {len(sizes)} rounds leave some without a step; give at "
            f"least {candidates * len(sizes)}."
        )
    return rungs


def survivors(losses: Mapping[Candidate, float], count: int) -> list[Candidate]:
    """Return the `count` candidates of lowest loss, best first; a loss that is not a number is the worst.

    Candidates of equal loss keep the order they are given in.
    """
    return sorted(losses, key=lambda one: math.inf if math.isnan(losses[one]) else losses[one])[:count]


# The rounds of successive halving on one training: at which step how many candidates are left.


@dataclass(frozen=True)
class LayerRung:
    """One round of a training.

    Args:
        candidates: How many are in it.
        end: The step after which they are scored, counted from the start of the training.
    """

    candidates: int
    end: int


def rungs_of_budget(candidates: int, total: int, factor: int) -> list[LayerRung]:
    """Divide a budget of all candidates' steps together; see `halving_rungs`.

    Raises:
        RecipeError: see `halving_rungs`.
    """
    rungs = halving_rungs(candidates, total, factor)
    ends = accumulate(rung.steps for rung in rungs)
    return [LayerRung(rung.candidates, end) for rung, end in zip(rungs, ends, strict=True)]


def rungs_of_training(candidates: int, steps: int, factor: int) -> list[LayerRung]:
    """Divide the steps of a training so that every round costs all its candidates together the same.

    Round i of n_i candidates gets a share of the steps in proportion to 1 / n_i, as successive halving has it; the
    last round ends with the training.

    Raises:
        RecipeError: for a factor below 2, or fewer steps than make every round one step long.
    """
    sizes = [rung.candidates for rung in halving_rungs(candidates, candidates * candidates, factor)]
    shares = list(accumulate(1 / size for size in sizes))
    ends = [round(steps * share / shares[-1]) for share in shares]
    if any(end <= before for before, end in pairwise([0, *ends])):
        raise RecipeError(
            f"{steps} steps are too few for {len(sizes)} rounds of {candidates} candidates; give more, or --no-halving."
        )
    return [LayerRung(size, end) for size, end in zip(sizes, ends, strict=True)]


# Candidates racing under one teacher: trained side by side, scored at every rung, the lower ones dropped.


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
