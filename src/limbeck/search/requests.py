"""`ProxyRequest`: the run that is searched for, the proxy that its candidates are trained on, and the study."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core.machine import bf16_is_fast
from limbeck.corpus import Corpus
from limbeck.errors import RecipeError
from limbeck.evaluation.cell import model_fingerprint
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.schema import Recipe

JOURNAL = "search.journal"
MOST_STEPS = 10**9
MOST_TRIALS = 10**6
"""Of trials, generations, and what else is counted beside steps."""
MOST_WORKERS = 1024


@dataclass(frozen=True)
class ProxyRequest:
    """What a search trains on, and where it keeps what it finds.

    Args:
        recipe: Of the run that is searched for.
        output: The search's folder.
        name: Of the study.
        steps: Of every candidate, in every stage; None leaves it to the recipe.
        share: Of the corpus that candidates are trained on, in (0, 1].
        storage: Journal file or database URL; None for a journal in the output.
    """

    recipe: Recipe
    output: Path
    name: str
    steps: int | None = None
    share: float = 1.0
    storage: str | None = None

    @property
    def place(self) -> str:
        """The storage."""
        return self.storage or str(self.output.expanduser() / JOURNAL)

    @property
    def proxy_recipe(self) -> Recipe:
        """The recipe of the candidates: as searched for, with the proxy's steps."""
        if self.steps is None:
            return self.recipe
        stages = range(len(self.recipe.stages))
        return load_recipe(self.recipe, [f"stages.{index}.training.max_steps={self.steps}" for index in stages])

    def check(self) -> None:
        """Refuse numbers that leave nothing to do.

        Raises:
            RecipeError: one line for the first.
        """
        check_steps("--steps", self.steps)
        if not 0 < self.share <= 1:
            raise RecipeError(f"--share {self.share} is no share of the corpus; give more than 0 and at most 1.")
        if not self.name.strip():
            raise RecipeError("--name is empty; give the study a name, or leave it out.")


def check_positive(option: str, value: float | None, most: int = MOST_TRIALS) -> None:
    """Refuse a number that leaves nothing to do, or more than any search does.

    Raises:
        RecipeError: for less than 1 or more than `most`.
    """
    if value is not None and value < 1:
        raise RecipeError(f"{option} {value} leaves nothing to do; give 1 or more.")
    if value is not None and value > most:
        raise RecipeError(f"{option} {value} is more than any search takes; give at most {most:,}.")


def check_steps(option: str, steps: int | None) -> None:
    """Refuse numbers of steps that leave nothing to do, or never end.

    Raises:
        RecipeError: for less than 1 or more than `MOST_STEPS`.
    """
    if steps is not None and steps > MOST_STEPS:
        raise RecipeError(f"{option} {steps} is more than any training takes; give at most {MOST_STEPS:,}.")
    check_positive(option, steps, MOST_STEPS)


def check_text_only(plan: RunPlan) -> None:
    """Refuse recipes whose students cannot be compared on held-out text.

    Raises:
        RecipeError: for one without stages, or with a stage that learns from labelled rows.
    """
    if not plan.stages:
        raise RecipeError("The recipe has no stages, so candidates would learn nothing; give it one.")
    for choice in plan.stages:
        if choice.pairing.task != "text":
            raise RecipeError(
                f"Stage '{choice.spec.title}' learns from labelled rows ({choice.pairing.task}), and candidates are "
                "compared on text; leave corpus.task out, and use what is found in this recipe."
            )


def steps_of_only_stage(plan: RunPlan, way_out: str) -> int:
    """Return the steps of a recipe of one stage, which candidates can be stopped on the way through.

    Args:
        plan: Of the proxy's recipe.
        way_out: What to do where they cannot, for the message: an option.

    Raises:
        RecipeError: for several stages, or a stage that counts epochs.
    """
    if len(plan.stages) > 1:
        raise RecipeError(
            f"The recipe has {len(plan.stages)} stages, and candidates are stopped early only where it has one; give "
            f"{way_out}, or a recipe of one stage."
        )
    steps = int(plan.stages[0].spec.training.get("max_steps") or -1)
    if steps < 1:
        raise RecipeError(
            f"The recipe counts epochs, and candidates are stopped early after a number of steps; give --steps, or "
            f"{way_out}."
        )
    return steps


# What makes the values of two searches comparable: teacher, text and everything of the run that is computed.


_NOT_COMPUTED = {"name", "output", "evaluation"}
"""Keys of a recipe that change nothing that is computed."""


def proxy_identity(
    plan: RunPlan, corpora: Sequence[Corpus], share: float, *, searched: Collection[str] = ()
) -> dict[str, Any]:
    """Return what a study must have been made with to be continued, by dotted names.

    Models and text are told by what is in them, not by where they are, so that machines may keep them elsewhere.

    Args:
        plan: Of the proxy's recipe.
        corpora: Of its stages.
        share: Of the text that is trained on.
        searched: Options of methods that the search decides.
    """
    recipe = plan.recipe.model_dump(mode="json", exclude=_NOT_COMPUTED)
    teacher, corpus = recipe.pop("teacher"), recipe.pop("corpus")
    stages = [_stage(stage, searched) for stage in recipe.pop("stages")]
    found = {
        "teacher": model_fingerprint(plan.recipe.teacher.model),
        "corpus": [corpus.path.name for corpus in corpora],
        "share": share,
        "teacher.dtype": teacher["dtype"],
        "teacher.revision": teacher["revision"],
        **flat({"corpus": _without_sources(corpus)}),
        **flat(recipe),
        **flat({"stages": {str(index): stage for index, stage in enumerate(stages)}}),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted names, so that the first that differs can be named."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _stage(stage: dict[str, Any], searched: Collection[str]) -> dict[str, Any]:
    """A stage with every default, without what is searched."""
    name = stage["method"]["name"]
    given = {key: value for key, value in stage["method"].items() if key != "name"}
    options = METHODS[name].options.model_validate(given).model_dump(mode="json")
    training = dict(stage["training"])
    if not {"bf16", "fp16"} & training.keys():
        training["bf16"] = bf16_is_fast()  # Machines that compute in another number format find other values.
    kept = {key: value for key, value in options.items() if key not in searched}
    corpus = _without_sources(stage["corpus"])
    return {**stage, "corpus": corpus, "method": {"name": name, **kept}, "training": training}


def _without_sources(corpus: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (corpus or {}).items() if key != "sources"}
