"""The fitness of layer mappings: train their students side by side, score each, take the mean."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import torch
from rich.console import Console

from limbeck.errors import Interrupted, LimbeckError, TrainingError
from limbeck.recipe.schema import Recipe
from limbeck.search.loop import Candidate
from limbeck.search.mapping_candidates import plan_candidate
from limbeck.search.mapping_space import MappingTuple
from limbeck.search.proxy_scores import ProxyScores, fitness_of
from limbeck.training.proxy import Proxy

SCORE = "score."
"""Begins the user attribute of a trial that holds one score."""
TRAINING_SECONDS, SCORING_SECONDS, PROBLEM = "training_seconds", "scoring_seconds", "problem"
"""User attributes of a trial: its share of the training of all that were trained with it, and what its scores took."""


class MappingFitness:
    """Evaluates layer mappings; what `run_search` calls.

    Every score is kept as a user attribute of the trial. A student that diverged, or that cannot be scored, has no
    fitness (NaN), and the others of its batch keep theirs.

    Args:
        proxy: Trains the candidates of a batch under one teacher.
        scores: Scores their students.
        recipe: That candidates are variants of.
        console: Where progress goes.
    """

    def __init__(self, proxy: Proxy, scores: ProxyScores, recipe: Recipe, console: Console) -> None:
        self._proxy = proxy
        self._scores = scores
        self._recipe = recipe
        self._console = console

    def __call__(self, candidates: Sequence[Candidate]) -> Iterator[float]:
        """Yield the fitness of each candidate as soon as it is known, in order."""
        plans = [plan_candidate(self._recipe, candidate.mapping) for candidate in candidates]
        numbers = sorted({n for c in candidates if (n := c.trial.user_attrs.get("generation")) is not None})
        which = f"Generation {', '.join(map(str, numbers))}" if numbers else "Queued in the study"
        self._say(f"{which}: {len(candidates)} to evaluate")
        started = time.monotonic()
        try:
            trained = self._proxy.train(plans)
        except torch.OutOfMemoryError:
            raise TrainingError(
                "The device is out of memory; train fewer candidates at once with --batch, or lower --batch-size."
            ) from None
        seconds = (time.monotonic() - started) / len(candidates)
        for candidate, plan, found in zip(candidates, plans, trained, strict=True):
            candidate.trial.set_user_attr(TRAINING_SECONDS, round(seconds, 1))
            if found.diverged:
                yield self._give_up(candidate, "its training diverged")
                continue
            started = time.monotonic()
            try:
                scores = self._scores.measure(found.student, plan, file_name(candidate.mapping))
            except Interrupted:
                raise
            except LimbeckError as problem:
                yield self._give_up(candidate, str(problem))
                continue
            fitness = fitness_of(scores)
            if math.isnan(fitness):
                yield self._give_up(candidate, "a score is no number: its student gives every text the same vector")
                continue
            candidate.trial.set_user_attr(SCORING_SECONDS, round(time.monotonic() - started, 1))
            for name, score in scores.items():
                candidate.trial.set_user_attr(f"{SCORE}{name}", score)
            parts = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
            self._say(f"  {show_mapping(candidate.mapping)}  {fitness:.2f}  ({parts})")
            yield fitness

    def _give_up(self, candidate: Candidate, problem: str) -> float:
        candidate.trial.set_user_attr(PROBLEM, problem)
        self._say(f"  {show_mapping(candidate.mapping)}  no fitness: {problem}", style="yellow")
        return math.nan

    def _say(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def show_mapping(mapping: Sequence[int]) -> str:
    """Write a mapping as the paper does: `(0, 0, 5, 10)`."""
    return f"({', '.join(map(str, mapping))})"


def file_name(mapping: MappingTuple) -> str:
    """Return a mapping as a file may be called: `0-0-5-10`."""
    return "-".join(map(str, mapping))
