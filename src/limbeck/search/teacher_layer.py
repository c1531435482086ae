"""`search_teacher_layer`: which layer of the teacher to learn from, all candidates under one forward of it.

Successive halving: many candidates for a few steps, the better ones for more.

Source: Jamieson and Talwalkar 2016 (arXiv 1502.07943), algorithm 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar

from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import Trial, TrialState
from rich.console import Console
from transformers import PreTrainedModel

from limbeck.core.records import plain
from limbeck.errors import RecipeError, TrainingError
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search import engine
from limbeck.search.requests import TeacherLayerRequest as TeacherLayerRequest
from limbeck.search.scores import (
    LAYER_SCORES,
    HeldOutScores,
    Scores,
    describe_layer_scores,
    held_out_batches,
    held_out_pairs,
    mean_score,
    plain_copy,
)
from limbeck.search.study import shown
from limbeck.training.proxy import Proxy

OPTION = "teacher_layer"
RESULT = "result"
"""Study attribute: the rows of a finished search; see `TeacherLayerSearch.found`."""


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
    sizes = _sizes(candidates, factor)
    rungs = [Rung(size, steps // (size * len(sizes))) for size in sizes]
    if rungs[0].steps < 1:
        raise RecipeError(
            f"{steps} steps for {candidates} candidates in {len(sizes)} rounds leave some without a step; give at "
            f"least {candidates * len(sizes)}."
        )
    return rungs


def _sizes(candidates: int, factor: int) -> list[int]:
    if factor < 2:
        raise RecipeError(f"A halving factor of {factor} drops no candidate; give at least 2.")
    sizes = [candidates]
    while sizes[-1] // factor > 1:
        sizes.append(sizes[-1] // factor)
    return sizes


Candidate = TypeVar("Candidate", bound=Hashable)


def survivors(losses: Mapping[Candidate, float], count: int) -> list[Candidate]:
    """Return the `count` candidates of lowest loss, best first; a loss that is not a number is the worst.

    Candidates of equal loss keep the order they are given in.
    """
    return sorted(losses, key=lambda one: math.inf if math.isnan(losses[one]) else losses[one])[:count]


def rungs_of_training(candidates: int, steps: int, factor: int) -> list[Rung]:
    """Divide the steps of a training so that every round costs all its candidates together the same.

    Round i of n_i candidates gets a share of the steps in proportion to 1 / n_i, as successive halving has it; the
    last round ends with the training.

    Raises:
        RecipeError: for a factor below 2, or fewer steps than make every round one step long.
    """
    sizes = _sizes(candidates, factor)
    shares = list(accumulate(1 / size for size in sizes))
    ends = [round(steps * share / shares[-1]) for share in shares]
    if any(end <= before for before, end in pairwise([0, *ends])):
        raise RecipeError(
            f"{steps} steps are too few for {len(sizes)} rounds of {candidates} candidates; give more, or --no-halving."
        )
    return [Rung(size, end - before) for size, (before, end) in zip(sizes, pairwise([0, *ends]), strict=True)]


def ends_of(rungs: Sequence[Rung]) -> list[int]:
    """Return the step after which each round ends, counted from the start of one training."""
    return list(accumulate(rung.steps for rung in rungs))


@dataclass
class LayerCandidate:
    """A teacher layer, and what became of its student.

    Args:
        layer: The teacher layer.
        trial: Its trial.
        scores: By step, the scores by name.
        steps: Steps that it trained.
        own_loss: Its loss on held-out text at the end.
        diverged: Whether its training, or a score, came to no finite number.
        cut: Whether it was dropped after a round.
    """

    layer: int
    trial: Trial
    scores: dict[int, Scores] = field(default_factory=dict)
    steps: int = 0
    own_loss: float = math.nan
    diverged: bool = False
    cut: bool = False

    @property
    def state(self) -> str:
        """`trained`, `cut` or `diverged`."""
        return "diverged" if self.diverged else "cut" if self.cut else "trained"

    @property
    def score(self) -> float:
        """The mean of its last scores; NaN where there are none."""
        return mean_score(self.scores[max(self.scores)]) if self.scores else math.nan

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Sorts candidates best first: who came further, then who scored higher where it ended."""
        return self.diverged, -max(self.scores, default=0), math.inf if math.isnan(self.score) else -self.score

    def row(self, rank: int) -> dict[str, Any]:
        """Return its row of the record."""
        scores = [
            {"step": step, **{name: plain(value) for name, value in {"score": mean_score(found), **found}.items()}}
            for step, found in sorted(self.scores.items())
        ]
        steps, own_loss = self.steps, plain(self.own_loss)
        return {
            "rank": rank, "layer": self.layer, "scores": scores, "steps": steps, "state": self.state,
            "own_loss": own_loss,
        }  # fmt: skip


Measure: TypeAlias = Callable[[PreTrainedModel, RunPlan, str], Scores]


def halve(
    proxy: Proxy,
    plans: Sequence[RunPlan],
    candidates: Sequence[LayerCandidate],
    rungs: Sequence[Rung],
    measure: Measure,
    console: Console,
) -> None:
    """Train candidates side by side; after every round but the last the lower ones are dropped.

    Args:
        proxy: Trains them, all by one learning-rate schedule.
        plans: One for each candidate.
        candidates: They get their scores and states.
        rungs: The rounds; none, or a single one, scores all at the end.
        measure: Scores a student; more is better.
        console: Where scores are said as soon as they are known.
    """

    def score(index: int, step: int, student: PreTrainedModel) -> None:
        one = candidates[index]
        one.scores[step] = found = measure(student, plans[index], str(one.layer))
        parts = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        engine.say(console, f"  layer {one.layer} after {step} steps: {one.score:.2f} ({parts})")
        with suppress(UpdateFinishedTrialError):
            one.trial.report(one.score, step)

    def drop(step: int, left: int, students: Mapping[int, PreTrainedModel]) -> Collection[int]:
        for index, student in students.items():
            score(index, step, plain_copy(student, plans[index]))
        best = survivors({index: -candidates[index].score for index in students}, left)
        for index in students:
            candidates[index].cut = index not in best
        return best

    cuts = {end: partial(drop, end, after.candidates) for end, after in zip(ends_of(rungs), rungs[1:], strict=False)}
    for index, found in enumerate(proxy.train(plans, cuts=cuts)):
        one = candidates[index]
        one.steps, one.diverged, one.own_loss = found.steps, found.diverged, found.held_out.get("loss", math.nan)
        if one.state == "trained":
            score(index, found.steps, found.student)
            one.diverged = math.isnan(one.score)


class TeacherLayerSearch(engine.Search):
    """A search for a teacher layer that is checked and planned.

    Attributes:
        layers: The candidates in order.
        rungs: The rounds; none where all are trained as long as the recipe says.
        rounds: Candidates and last step of each.
        plans: One for each candidate; they differ in the teacher layer only.
    """

    kind = "teacher-layer"
    searched = rf"stages\.\d+\.method\.{OPTION}"
    stopped = "Stopped; the same command starts the training of the candidates again."
    request: TeacherLayerRequest
    _study: Study
    _waits = False

    def __init__(self, request: TeacherLayerRequest) -> None:
        super().__init__(request)
        if request.proxy.steps is not None and request.steps_total is not None:
            raise RecipeError("--steps and --steps-total both say how long candidates train; give one of them.")
        recipe = request.proxy.proxy_recipe
        _check_stages(recipe)
        plan = plan_run(recipe)
        engine.check_text_only(plan)
        student, teacher = plan.student.layers, plan.teacher.layers
        if student > teacher:
            raise RecipeError(
                f"The student has {student} layers and its teacher {teacher}; give student.shape at most {teacher}."
            )
        self.layers = choose_layers(request.layers, plan)
        self.rungs = self._rungs(plan)
        self.rounds = [(rung.candidates, end) for rung, end in zip(self.rungs, ends_of(self.rungs), strict=True)]
        if self.rungs:
            recipe = replace(request.proxy, steps=ends_of(self.rungs)[-1]).proxy_recipe
        self.plans = [plan_run(engine.with_option(recipe, OPTION, layer)) for layer in self.layers]
        self.plan = self.plans[0]

    def _rungs(self, plan: RunPlan) -> Sequence[Rung]:
        count, halving, total = len(self.layers), self.request.halving, self.request.steps_total
        if halving is None:
            if total is None:
                return ()
            if total < count:
                raise RecipeError(
                    f"--steps-total {total} leaves some of {count} candidates without a step; give at least {count}."
                )
            return (Rung(count, total // count),)
        if total is not None:
            if len(plan.stages) > 1:
                engine.steps_of_only_stage(plan, "--no-halving")
            return halving_rungs(count, total, halving)
        return rungs_of_training(count, engine.steps_of_only_stage(plan, "--no-halving"), halving)

    def identity(self) -> dict[str, Any]:
        """Return what scores must have in common to be compared."""
        return {"layers": list(self.layers), "rungs": self.rounds, **describe_layer_scores(self.plan)}

    def sampler(self) -> RandomSampler:
        """Return a sampler that has nothing to choose: every candidate is tried once."""
        return RandomSampler(self.plan.recipe.seed)

    def check_text(self) -> None:
        """Refuse too little held-out text."""
        held_out_pairs(engine.held_out_corpus(self.proxy))
        held_out_batches(engine.held_out_corpus(self.proxy), self.proxy.tokenizer)

    def is_finished(self, study: Study) -> bool:
        """Return whether the study has a result."""
        return RESULT in study.user_attrs

    def announce(self, study: Study) -> None:
        """Say how many candidates there are, and the rounds."""
        rungs = ", ".join(f"{candidates} to step {end}" for candidates, end in self.rounds)
        if not self.is_finished(study):
            engine.say(self.console, f"{len(self.layers)} teacher layers at once{f': {rungs}' if rungs else ''}")

    def load(self, study: Study) -> None:
        """Keep the study for the result; the teacher is loaded when no other process trains the candidates."""
        self._study = study

    def propose(self, study: Study, ask: engine.Ask) -> list[LayerCandidate]:
        """Take all candidates, each a trial, unless another process trains them."""
        if not study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            return [self._candidate(layer, ask()) for layer in self.layers]
        if not self._waits:
            engine.say(
                self.console, "Another process is at work on this study, or was killed elsewhere; waiting for it."
            )
            self._waits = True
        return []

    def _candidate(self, layer: int, trial: Trial) -> LayerCandidate:
        trial.suggest_int(OPTION, layer, layer)
        return LayerCandidate(layer, trial)

    def train(self, candidates: Sequence[LayerCandidate]) -> Iterator[engine.Outcome]:
        """Train and score the candidates side by side, and keep the result in the study."""
        proxy, corpus = self.proxy, engine.held_out_corpus(self.proxy)
        scores = HeldOutScores(proxy.load_teacher(), proxy.tokenizer, corpus, self.plan, LAYER_SCORES)
        started = time.monotonic()
        halve(proxy, self.plans, candidates, self.rungs, scores.measure, self.console)
        for one in candidates:
            yield engine.Outcome(math.nan if one.diverged else one.score, cut=one.state == "cut")
        if all(one.diverged for one in candidates):
            raise TrainingError(
                "Every candidate diverged, so no layer can be recommended; lower the learning rate, under a new "
                f"--name. The study is kept in {shown(self.request.proxy.place)}."
            )
        best_first = sorted(candidates, key=lambda one: one.rank)
        result = {
            "layers": [one.row(rank) for rank, one in enumerate(best_first, start=1)],
            "seconds": round(time.monotonic() - started, 1),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._study.set_user_attr(RESULT, result)

    def found(self, study: Study) -> dict[str, Any]:
        """Return a row for each candidate, best first, the rounds, and the searched run, reading the best layer."""
        plan, result = self.plan, study.user_attrs[RESULT]
        best = result["layers"][0]
        recipe = engine.with_option(self.request.proxy.recipe, OPTION, best["layer"])
        return {
            "created": result["created"],
            "teacher": {"name": plan.teacher_choice.title, "shape": str(plan.teacher), "layers": plan.teacher.layers},
            "student": {"shape": str(plan.student)},
            "scores": list(LAYER_SCORES),
            "halving": self.request.halving,
            "rungs": [{"candidates": candidates, "end": end} for candidates, end in self.rounds],
            "layers": result["layers"],
            "best": best,
            "recipe": recipe.model_dump(mode="json", exclude_unset=True),
            "cost": {"steps": sum(row["steps"] for row in result["layers"]), "seconds": result["seconds"]},
        }


def search_teacher_layer(
    request: TeacherLayerRequest, console: Console | None = None, *, poll_seconds: float = engine.POLL_SECONDS
) -> dict[str, Any]:
    """Rank the layers of a teacher by the students that learn from them, and recommend one.

    MiniLMv2 (arXiv 2012.15828, section 3.2) found the best layer by training a student from each, and left choosing it
    without that as future work. Here all students are trained at once, so the teacher runs once for all, and the lower
    ones are dropped on the way.

    A search that is finished gives its result again. One that was stopped or killed starts its training again, since
    its candidates share one training; another process that is at work on the study is waited for.

    Args:
        request: What is asked.
        console: Where progress goes; nowhere by default.
        poll_seconds: Between looks at what another process does.

    Returns:
        The record, as plain values: see `TeacherLayerSearch.found`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it.
    """
    return engine.run_search_of(TeacherLayerSearch(request), console, poll_seconds=poll_seconds)


def _check_stages(recipe: Recipe) -> None:
    """Refuse a recipe with no stage whose teacher layer can be searched, or with several."""
    if not recipe.stages:
        raise RecipeError("The recipe has no stages, so no teacher layer is read; give it one.")
    found = engine.searched_stages(recipe, OPTION)
    if not found:
        used = " and ".join(dict.fromkeys(f"'{stage.method['name']}'" for stage in recipe.stages))
        known = ", ".join(engine.methods_with(OPTION))
        raise RecipeError(f"{used} reads no teacher layer by number; methods that do are {known}.")
    if len(found) > 1:
        titles = ", ".join(recipe.stages[index].title for index in found)
        raise RecipeError(f"The stages {titles} each read a teacher layer; search one at a time, in its own recipe.")


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
