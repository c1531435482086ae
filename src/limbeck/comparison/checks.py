"""Which combinations of a plan can be, from configurations only: before any weight or text is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.comparison.cells import Combination, combine
from limbeck.comparison.plan import ComparisonPlan
from limbeck.core.machine import choose_device
from limbeck.errors import LimbeckError, ModelError, RecipeError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import RunPlan, choose_teacher, plan_run
from limbeck.recipe.training_arguments import check_training

_PLACE = re.compile(r"^(stages\.\d+(\.\w+)*: )+")


@dataclass(frozen=True)
class Impossible:
    """A combination that cannot be, and why, in one line."""

    combination: Combination
    reason: str


@dataclass(frozen=True)
class CheckedPlan:
    """A plan whose combinations have been checked.

    Attributes:
        plan: The plan.
        runs: What can be, each with what its recipe comes to.
        impossible: What cannot be and is left out.
    """

    plan: ComparisonPlan
    runs: tuple[tuple[Combination, RunPlan], ...]
    impossible: tuple[Impossible, ...]

    @property
    def combinations(self) -> list[Combination]:
        """What can be."""
        return [combination for combination, _ in self.runs]

    @property
    def with_text(self) -> RunPlan:
        """The first run that reads text: all read the same."""
        return next(run for _, run in self.runs if run.stages)


def check_plan(plan: ComparisonPlan) -> CheckedPlan:
    """Check every combination of a plan.

    Raises:
        LimbeckError: for what is wrong whatever the combination: the teacher, a student, a source, an argument.
        RecipeError: for combinations that cannot be, each with its reason, unless the plan leaves them out; also if
            none is left, or two are the same.
    """
    _check_arguments(plan)
    choose_device(plan.evaluation.speed.device)
    choose_teacher(plan.teacher)
    for index, student in enumerate(plan.students):
        bare = {"teacher": plan.teacher.model_dump(mode="json"), "student": student.in_recipe()}
        try:
            _check_lengths(plan, plan_run(load_recipe(bare)))
        except LimbeckError as error:
            raise type(error)(f"students.{index}: {error}") from None
    runs: list[tuple[Combination, RunPlan]] = []
    impossible: list[Impossible] = []
    for combination in combine(plan):
        try:
            runs.append((combination, plan_run(load_recipe(combination.recipe(plan, plan.seeds[0])))))
        except (RecipeError, ModelError) as error:
            impossible.append(Impossible(combination, _PLACE.sub("", str(error))))
    if impossible and (not plan.skip_impossible or not any(run.stages for _, run in runs)):
        raise RecipeError(_refusal(impossible, len(impossible) + len(runs), skipping=plan.skip_impossible))
    _refuse_twins([combination for combination, _ in runs], plan)
    return CheckedPlan(plan, tuple(runs), tuple(impossible))


def _check_arguments(plan: ComparisonPlan) -> None:
    if plan.corpus.streaming:
        raise RecipeError(
            "corpus.streaming: all runs of a comparison read one built corpus, whose tokens the budget is counted in; "
            "leave it out, and bound the text by corpus.max_documents."
        )
    check_training(plan.training, "training")
    for index, entry in enumerate(plan.methods):
        check_training(entry.training, f"methods.{index}.training")
        for number, stage in enumerate(entry.stages or ()):
            check_training(stage.training, f"methods.{index}.stages.{number}.training")


def _check_lengths(plan: ComparisonPlan, run: RunPlan) -> None:
    speed = plan.evaluation.speed
    for shape in (run.teacher, run.student):
        if speed.enabled and shape.positions is not None and max(speed.lengths) > shape.positions:
            raise RecipeError(
                f"evaluation.speed.lengths {speed.lengths} go beyond its {shape.positions} positions; use less."
            )


def _refusal(impossible: Sequence[Impossible], count: int, *, skipping: bool) -> str:
    """Every combination that cannot be, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for found in impossible:
        reasons.setdefault(found.reason.rstrip("."), []).append(found.combination.title)
    listed = "; ".join(
        f"({number}) {', '.join(titles)}: {reason}" for number, (reason, titles) in enumerate(reasons.items(), 1)
    )
    way_out = "change the plan" if skipping else "change them, or leave them out with skip_impossible: true"
    return f"{len(impossible)} of {count} combinations cannot be: {listed}. Please {way_out}."


def _refuse_twins(combinations: Sequence[Combination], plan: ComparisonPlan) -> None:
    """Refuse two names for one run: it would be trained once and counted twice."""
    seen: dict[str, Combination] = {}
    for combination in combinations:
        recipe = combination.recipe(plan, 0)
        key = repr([recipe["student"], recipe["stages"], combination.variant.shares])
        if key in seen:
            raise RecipeError(f"'{seen[key].title}' and '{combination.title}' are the same run; leave one out.")
        seen[key] = combination
