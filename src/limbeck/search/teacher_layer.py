"""`search_teacher_layer`: which layer of the teacher to learn from, all candidates under one forward of it.

A *candidate* is a teacher layer, with the student that learns from it. All candidates train side by side, in rounds
after which the worse ones are dropped; see `limbeck.search.rungs`.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import Trial, TrialState
from rich.console import Console
from transformers import PreTrainedModel

from limbeck.core.records import plain, timestamp
from limbeck.core.studies import LayerScore, SearchedLayer
from limbeck.errors import RecipeError, TrainingError
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import Recipe
from limbeck.search import engine, held_out_scores
from limbeck.search.requests import TeacherLayerRequest
from limbeck.search.rungs import Round, halving_rungs, rounds_of_rungs, rounds_of_training, survivors
from limbeck.search.scores import mean_score
from limbeck.search.searched_recipe import (
    check_has_option,
    check_only_stage,
    check_reads_model,
    check_text_only,
    searched_stages,
    steps_of_only_stage,
    with_option,
)
from limbeck.search.storage import shown
from limbeck.search.work import POLL_SECONDS, Ask, Outcome
from limbeck.training import cohort_trainer, proxy

OPTION = "teacher_layer"
"""The option of methods that is searched, and the parameter of a trial."""
RESULT = "result"
"""Study attribute: the rows of a finished search; see `TeacherLayerSearch.results`."""


def search_teacher_layer(
    request: TeacherLayerRequest, console: Console | None = None, *, poll_seconds: float = POLL_SECONDS
) -> dict[str, Any]:
    """Rank the layers of a teacher by the students that learn from them, and recommend one.

    MiniLMv2 (arXiv 2012.15828, section 3.2) found the best layer by training a student from each, and left choosing it
    without that as future work. Here all students are trained at once, so the teacher runs once for all, and the lower
    ones are dropped on the way.

    A search that is finished gives its result again. One that was stopped or killed starts its training again, since
    its candidates share one training; another process that is at work on the study is waited for.

    Args:
        request: The request.
        console: Receives the progress; by default it is not shown.
        poll_seconds: Between looks at what another process does.

    Returns:
        The record, as plain values: see `TeacherLayerSearch.results`. Nothing but the study is on disk yet: the command
        writes tables, figures and the recipe. Under a launcher of several processes it is empty in all but the main
        one.

    Raises:
        LimbeckError: one clear line, before anything is trained where it can be known before.
        Interrupted: if the user stopped it.
    """
    return engine.run_search_of(TeacherLayerSearch(request), console, poll_seconds=poll_seconds)


@dataclass
class LayerCandidate:
    """A candidate's trial, and its row of the record, which is filled in while its student is trained and scored.

    The `state` of the row is `trained` from the beginning; it changes to `cut` or `diverged` where training ended so.
    """

    trial: Trial
    row: SearchedLayer

    @property
    def last_score(self) -> float:
        """The last score; NaN where there is none."""
        if not self.row.scores or self.row.scores[-1].score is None:
            return math.nan
        return self.row.scores[-1].score

    @property
    def sort_key(self) -> tuple[bool, int, float]:
        """Sorts candidates best first: by steps of training, then by the last score; diverged ones come last."""
        last_step = 0
        if self.row.scores:
            last_step = self.row.scores[-1].step
        negative_score = math.inf if math.isnan(self.last_score) else -self.last_score
        return self.row.state == "diverged", -last_step, negative_score


class TeacherLayerSearch(engine.Search):
    """A search for a teacher layer that is checked and planned.

    Attributes:
        layers: The candidates in order.
        rounds: The rounds of the training; empty if all candidates are trained as long as the recipe says.
        plans: Candidate to the plan of its run; plans differ in the teacher layer alone.
    """

    kind = "teacher-layer"
    searched = rf"stages\.\d+\.method\.{OPTION}"
    stopped = "Stopped; the same command starts the training of the candidates again."
    request: TeacherLayerRequest
    # Set by `load` and by `train`.
    _study: Study
    _scorer: held_out_scores.HeldOutScores
    # Whether it was said that another process is waited for, which is said once.
    _waits = False

    def __init__(self, request: TeacherLayerRequest) -> None:
        super().__init__(request)
        if request.proxy.steps is not None and request.steps_total is not None:
            raise RecipeError("--steps and --steps-total both say how long candidates train; give only one of them.")
        recipe = request.proxy.proxy_recipe
        check_reads_model(recipe, "a teacher layer")
        _check_stages(recipe)
        plan = plan_run(recipe)
        check_text_only(plan)
        _check_depth(plan)

        self.layers = choose_layers(request.layers, plan)
        self.rounds = _plan_rounds(request, plan, candidates=len(self.layers))
        self.plans = self._plan_candidates()
        # Candidates differ in the teacher layer alone, so any of them stands for all.
        self.plan = self.plans[self.layers[0]]

    def _plan_candidates(self) -> dict[int, RunPlan]:
        """Plan the run of each candidate; with rounds it has as many steps as they have together."""
        proxy_request = self.request.proxy
        if self.rounds:
            # The ends of rounds are counted from the beginning of the training.
            proxy_request = replace(proxy_request, steps=self.rounds[-1].end)
        recipe = proxy_request.proxy_recipe
        return {layer: plan_run(with_option(recipe, OPTION, layer)) for layer in self.layers}

    def identity(self) -> dict[str, Any]:
        """Return the settings that scores depend on beside those of the run."""
        return {
            "layers": list(self.layers),
            "rungs": self.rounds,
            "scores": list(held_out_scores.LAYER_SCORES),
            "scores.pairs": held_out_scores.PAIRS,
            "scores.blocks": held_out_scores.LOSS_BLOCKS,
            "scores.pooling": self.plan.pooling,
        }

    def sampler(self) -> RandomSampler:
        """Return a sampler that has nothing to choose: every candidate is tried once."""
        return RandomSampler(self.plan.recipe.seed)

    def check_text(self) -> None:
        """Refuse too little held-out text."""
        held_out_scores.held_out_pairs(self.proxy)
        held_out_scores.loss_batches(self.proxy)

    def is_finished(self, study: Study) -> bool:
        """Return whether the study has a result."""
        return RESULT in study.user_attrs

    def announce(self, study: Study) -> None:
        """Print how many candidates there are, and the rounds."""
        if self.is_finished(study):
            return
        line = f"{len(self.layers)} teacher layers at once"
        if self.rounds:
            rounds = [f"{planned.candidates} to step {planned.end}" for planned in self.rounds]
            line += f": {', '.join(rounds)}"
        self.say(line)

    def load(self, study: Study) -> None:
        """Keep the study, into which `train` writes the result; `train` loads the teacher too.

        Here it would be loaded in vain, if another process trains the candidates.
        """
        self._study = study

    def propose(self, study: Study, ask: Ask) -> list[LayerCandidate]:
        """Take all candidates at once, with a trial for each; take none while another process trains them."""
        is_at_work = bool(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
        if is_at_work:
            if not self._waits:
                self.say(
                    "Another process is at work on this study, or was killed on another machine; this process "
                    "waits until it ends."
                )
                self._waits = True
            return []

        candidates = []
        for layer in self.layers:
            trial = ask()
            # A range of a single value: the trial has this layer.
            trial.suggest_int(OPTION, layer, layer)
            row = SearchedLayer(rank=None, layer=layer, scores=[], steps=0, state="trained", own_loss=None)
            candidates.append(LayerCandidate(trial, row))
        return candidates

    def plan_of(self, candidate: LayerCandidate) -> RunPlan:
        """Return the plan of the run that reads the candidate's layer."""
        return self.plans[candidate.row.layer]

    def cuts_of(self, candidates: Sequence[LayerCandidate]) -> Mapping[int, cohort_trainer.Cut]:
        """Drop the lower candidates after every round but the last."""
        cuts = {}
        # At the end of a round as many candidates go on as the next round has.
        for this_round, next_round in pairwise(self.rounds):
            cuts[this_round.end] = partial(self._drop, candidates, this_round.end, next_round.candidates)
        return cuts

    def _drop(
        self, candidates: Sequence[LayerCandidate], step: int, count: int, students: Mapping[int, PreTrainedModel]
    ) -> Collection[int]:
        """Score the students in training, and return the best, which go on.

        Args:
            candidates: All candidates.
            step: The step after which they are scored.
            count: Number of candidates that go on.
            students: The students that are still in training, by the index of their candidate.
        """
        for index, student in students.items():
            line = self._add_score(candidates[index], step, held_out_scores.plain_copy(student, self.plan))
            self.say(f"  {line}")
        # `survivors` takes losses, of which lower is better.
        losses = {index: -candidates[index].last_score for index in students}
        best = survivors(losses, count)
        for index in students:
            if index not in best:
                candidates[index].row.state = "cut"
        return best

    def _add_score(self, candidate: LayerCandidate, step: int, student: PreTrainedModel) -> str:
        """Score a student, and add the score to the candidate's row and to its trial.

        Args:
            candidate: The candidate, whose `last_score` is this one from now on.
            step: The step after which the student is scored.
            student: The student, in a model without taps.

        Returns:
            A line about the score to print.
        """
        layer = candidate.row.layer
        scores = self._scorer.measure(student, self.plan_of(candidate), name=str(layer))
        # `plain` turns a score that is not a number into None, as records have it.
        values = plain({"step": step, "score": mean_score(scores), **scores})
        candidate.row.scores.append(LayerScore(**values))
        # Where this worker fell silent for long, another one took it for dead and has finished the trial.
        with suppress(UpdateFinishedTrialError):
            candidate.trial.report(candidate.last_score, step)

        named_scores = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
        return f"layer {layer} after {step} steps: {candidate.last_score:.2f} ({named_scores})"

    def score(self, candidate: LayerCandidate, trained: proxy.Trained) -> tuple[Outcome, str]:
        """Fill in the row of a candidate; return its last score as its outcome, and a line about it to print."""
        row = candidate.row
        row.steps = trained.steps
        row.own_loss = trained.held_out.get("loss")
        if trained.diverged:
            row.state = "diverged"
        line = f"layer {row.layer}: {row.state}"
        # A candidate that was cut has got its last score when it was cut.
        if row.state == "trained":
            line = self._add_score(candidate, trained.steps, trained.student)
            if math.isnan(candidate.last_score):
                row.state = "diverged"
        # An outcome without a value is one of a candidate that diverged.
        value = candidate.last_score
        if row.state == "diverged":
            value = math.nan
        return Outcome(value, cut=row.state == "cut"), line

    def train(self, candidates: Sequence[LayerCandidate]) -> Iterator[Outcome]:
        """Train and score the candidates side by side, and keep the result in the study."""
        started = time.monotonic()
        self._scorer = held_out_scores.HeldOutScores(self.proxy, held_out_scores.LAYER_SCORES)
        # Scoring fills in the rows of the candidates, so all are complete once the last outcome is taken.
        yield from super().train(candidates)
        if all(candidate.row.state == "diverged" for candidate in candidates):
            raise TrainingError(
                "Every candidate diverged, so no layer can be recommended; lower --learning-rate and search again "
                f"under a new --name. The study is kept in {shown(self.request.proxy.place)}."
            )
        # The rows of the record, best first.
        best_first = sorted(candidates, key=lambda candidate: candidate.sort_key)
        ranked = [candidate.row for candidate in best_first]
        for rank, row in enumerate(ranked, start=1):
            row.rank = rank
        seconds = round(time.monotonic() - started, 1)
        self._study.set_user_attr(RESULT, {"layers": plain(ranked), "seconds": seconds, "created": timestamp()})

    def results(self, study: Study) -> dict[str, Any]:
        """Return a row for each candidate, best first, the rounds, and the recipe with the best layer."""
        plan = self.plan
        result = study.user_attrs[RESULT]
        best = result["layers"][0]
        return {
            "created": result["created"],
            "teacher": {"name": plan.teacher_info.title, "shape": str(plan.teacher), "layers": plan.teacher.layers},
            "student": {"shape": str(plan.student)},
            "scores": list(held_out_scores.LAYER_SCORES),
            "halving": self.request.halving,
            "rungs": [planned._asdict() for planned in self.rounds],
            "layers": result["layers"],
            "best": best,
            "recipe": with_option(self.request.proxy.recipe, OPTION, best["layer"]),
            "cost": {"steps": sum(row["steps"] for row in result["layers"]), "seconds": result["seconds"]},
        }


def choose_layers(layers: Sequence[int] | None, plan: RunPlan) -> tuple[int, ...]:
    """Return the candidates in order.

    Args:
        layers: The layers of the request; None for all.
        plan: The plan of the recipe.

    Raises:
        RecipeError: for a layer that the teacher does not have, or fewer than two.
    """
    depth = plan.teacher.layers
    if layers is None:
        layers = range(1, depth + 1)
    candidates = tuple(sorted(set(layers)))
    for layer in candidates:
        if not 1 <= layer <= depth:
            raise RecipeError(
                f"--layers names layer {layer}, but this teacher has only layers 1 to {depth}; give only those."
            )
    if len(candidates) < 2:
        raise RecipeError(
            f"A search needs at least two candidates, not {len(candidates)}; give at least two layers from 1 to "
            f"{depth} as --layers."
        )
    return candidates


def _plan_rounds(request: TeacherLayerRequest, plan: RunPlan, *, candidates: int) -> list[Round]:
    """Return the rounds of the training.

    | halving | steps_total | rounds |
    |---|---|---|
    | no | no | none: all candidates are trained as long as the recipe says |
    | no | yes | one, in which each candidate has an equal part of the total |
    | yes | no | successive halving within the steps of the recipe |
    | yes | yes | successive halving within the total of all candidates |

    Raises:
        RecipeError: for too few steps, or a recipe whose training cannot be stopped on the way.
    """
    total = request.steps_total
    if request.halving is None:
        if total is None:
            return []
        if total < candidates:
            raise RecipeError(
                f"--steps-total {total} would leave some of the {candidates} candidates without a step; give at "
                f"least {candidates} steps."
            )
        return [Round(candidates, end=total // candidates)]
    if total is None:
        steps = steps_of_only_stage(plan, "--no-halving")
        return rounds_of_training(candidates, steps, request.halving)
    check_only_stage(plan, "--no-halving")
    return rounds_of_rungs(halving_rungs(candidates, total, request.halving))


def _check_stages(recipe: Recipe) -> None:
    """Refuse a recipe with no stage whose teacher layer can be searched, or with several."""
    if not recipe.stages:
        raise RecipeError("The recipe has no stages, so no teacher layer is read; give the recipe a stage.")
    check_has_option(recipe, OPTION, "reads no teacher layer by number")
    stages = searched_stages(recipe, OPTION)
    if len(stages) > 1:
        titles = ", ".join(recipe.stages[index].title for index in stages)
        raise RecipeError(
            f"The stages {titles} each read a teacher layer, but a search chooses only one; search for each stage "
            "in a recipe of its own."
        )


def _check_depth(plan: RunPlan) -> None:
    """Refuse a student that is deeper than its teacher."""
    student_layers = plan.student.layers
    teacher_layers = plan.teacher.layers
    if student_layers > teacher_layers:
        raise RecipeError(
            f"The student has {student_layers} layers and its teacher {teacher_layers}; give student.shape at most "
            f"{teacher_layers} layers."
        )
