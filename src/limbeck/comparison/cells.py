"""Cells, the runs of a comparison: their recipes, identities and steps, and the checks of a plan before any runs."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.comparison.plan import ComparedStudent, ComparisonPlan, Variant
from limbeck.core import devices, hashing, studies
from limbeck.errors import LimbeckError, ModelError, RecipeError
from limbeck.models.families import Shape
from limbeck.recipe.load import load_recipe
from limbeck.recipe.model_plans import plan_teacher
from limbeck.recipe.plan import RunPlan, plan_run
from limbeck.recipe.schema import NOT_COMPUTED
from limbeck.recipe.training_arguments import build_arguments, check_training

RUNS = "runs"


@dataclass(frozen=True)
class Combination:
    """A student, trained by a method with one layer mapping.

    Attributes:
        student: The student.
        variant: The method.
    """

    student: ComparedStudent
    variant: Variant

    @property
    def title(self) -> str:
        """Method, mapping and student."""
        return f"{self.variant.title} on {self.student.title}"

    @property
    def parts(self) -> dict[str, str]:
        """Student, method and mapping by these names, as records have them."""
        return {"student": self.student.title, "method": self.variant.method, "mapping": self.variant.mapping}

    def recipe(self, plan: ComparisonPlan, seed: int, steps: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the recipe of a run; runs differ in nothing but student, method and seed.

        Args:
            plan: What is the same for all.
            seed: Of the run.
            steps: Of each stage; None for one step, to check what does not depend on it.
        """
        counts = steps or [1] * len(self.variant.stages)
        stages = [
            {**stage, "training": {**plan.training, **stage["training"], "max_steps": count}}
            for stage, count in zip(self.variant.stages, counts, strict=True)
        ]
        return {
            "name": f"{plan.name}: {self.title}, seed {seed}",
            "seed": seed,
            "teacher": plan.teacher.model_dump(mode="json"),
            "student": self.student.in_recipe(),
            "corpus": plan.corpus.model_dump(mode="json"),
            "stages": stages,
            "evaluation": {"enabled": False},
        }


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        combination: Student and method.
        shape: The student's.
        seed: Of start, data order and dropout.
        steps: Of each stage.
        recipe: What `limbeck.distill` is given, without the folder.
        began: Parts of the recipe as the comparison began with them, where they name other places by now.
    """

    combination: Combination
    shape: Shape
    seed: int
    steps: tuple[int, ...]
    recipe: dict[str, Any]
    began: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Hash of everything that is computed: neither titles nor places are part of it."""
        recipe = {**self.recipe, **self.began}
        return hashing.fingerprint({key: value for key, value in recipe.items() if key not in NOT_COMPUTED})

    @property
    def title(self) -> str:
        """Combination and seed."""
        return f"{self.combination.title}, seed {self.seed}"

    def folder(self, comparison: Path) -> Path:
        """Return the run's folder: a readable name that follows from the recipe alone, and its identity."""
        shape = self.recipe["student"]["shape"]
        size = shape if isinstance(shape, str) else f"{shape['layers']}x{shape['hidden']}"
        methods = "+".join(dict.fromkeys(stage["method"]["name"] for stage in self.recipe["stages"])) or "start"
        name = re.sub(r"[^\w+.-]+", "-", f"{size}-{methods}-seed{self.seed}")
        return comparison / RUNS / f"{name}-{self.id[:10]}"


def rows_per_step(training: Mapping[str, Any]) -> int:
    """Return how many rows an optimizer step reads: of all devices, all accumulated micro-batches together.

    Args:
        training: Training arguments, as a recipe has them.
    """
    arguments = build_arguments(training, output="", seed=0, evaluates=False)
    return int(arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size)


def steps_of_stages(
    tokens: int, shares: Sequence[float], trainings: Sequence[Mapping[str, Any]], tokens_per_row: float
) -> tuple[int, ...]:
    """Share a budget among the stages of a method.

    Stage k ends where (share_1 + … + share_k) x tokens have been read, to the nearest step, so that roundings do not
    add up: all methods read the same number of tokens to half a step.

    Args:
        tokens: The budget, real tokens.
        shares: Of each stage; they add up to 1.
        trainings: The training arguments of each stage.
        tokens_per_row: Mean length of the corpus' rows in tokens.

    Returns:
        Steps of each stage.

    Raises:
        RecipeError: if a stage's share is less than half a step.
    """
    steps: list[int] = []
    read = wanted = 0.0
    for share, training in zip(shares, trainings, strict=True):
        wanted += share * tokens
        per_step = rows_per_step(training) * tokens_per_row
        count = round((wanted - read) / per_step)
        if count < 1:
            raise RecipeError(
                f"budget.tokens {tokens} gives a stage {share * tokens:.0f} tokens, but one step reads about "
                f"{per_step:.0f}; raise the budget, or lower training.per_device_train_batch_size."
            )
        steps.append(count)
        read += count * per_step
    return tuple(steps)


_PLACE = re.compile(r"^(stages\.\d+(\.\w+)*: )+")


@dataclass(frozen=True)
class CheckedPlan:
    """A plan whose combinations have been checked.

    Attributes:
        plan: The plan.
        runs: The possible combinations, each with the plan of its runs.
        impossible: Those that are left out, with the reason in one line.
    """

    plan: ComparisonPlan
    runs: tuple[tuple[Combination, RunPlan], ...]
    impossible: tuple[studies.Combination, ...]

    @property
    def combinations(self) -> list[Combination]:
        """The possible ones."""
        return [combination for combination, _ in self.runs]

    @property
    def with_text(self) -> RunPlan:
        """The first run that reads text: all read the same."""
        return next(run for _, run in self.runs if run.stages)

    @property
    def with_vectors(self) -> RunPlan:
        """The first run whose student learns finished sentence vectors; without one, the first that reads text."""
        return next((run for _, run in self.runs if run.aligned_stage is not None), self.with_text)


def check_plan(plan: ComparisonPlan) -> CheckedPlan:
    """Check every combination of a plan.

    Raises:
        LimbeckError: for what is wrong whatever the combination: the teacher, a student, a source, an argument.
        RecipeError: for combinations that cannot be, each with its reason, unless the plan leaves them out; also if
            none is left, or two are the same.
    """
    _check_arguments(plan)
    devices.choose_device(plan.evaluation.speed.device)
    plan_teacher(plan.teacher)
    for index, student in enumerate(plan.students):
        bare = {"teacher": plan.teacher.model_dump(mode="json"), "student": student.in_recipe()}
        try:
            _check_lengths(plan, plan_run(load_recipe(bare)))
        except LimbeckError as error:
            raise type(error)(f"students.{index}: {error}") from None
    runs: list[tuple[Combination, RunPlan]] = []
    impossible: list[tuple[Combination, str]] = []
    variants = [variant for entry in plan.methods for variant in entry.variants()]
    for combination in itertools.starmap(Combination, itertools.product(plan.students, variants)):
        try:
            runs.append((combination, plan_run(load_recipe(combination.recipe(plan, plan.seeds[0])))))
        except (RecipeError, ModelError) as error:
            impossible.append((combination, _PLACE.sub("", str(error))))
    if impossible and (not plan.skip_impossible or not any(run.stages for _, run in runs)):
        raise RecipeError(_refusal(impossible, len(impossible) + len(runs), skipping=plan.skip_impossible))
    _refuse_twins([combination for combination, _ in runs], plan)
    left_out = tuple(studies.Combination(**one.parts, reason=reason) for one, reason in impossible)
    return CheckedPlan(plan, tuple(runs), left_out)


def _check_arguments(plan: ComparisonPlan) -> None:
    if plan.corpus.streaming:
        raise RecipeError(
            "corpus.streaming: all runs of a comparison read one built corpus, and the budget is counted in its "
            "tokens; leave streaming out, and limit the text by corpus.max_documents."
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
                f"evaluation.speed.lengths {speed.lengths} exceed its {shape.positions} positions; use smaller numbers."
            )


def _refusal(impossible: Sequence[tuple[Combination, str]], count: int, *, skipping: bool) -> str:
    """Every combination that cannot be, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for combination, reason in impossible:
        reasons.setdefault(reason.rstrip("."), []).append(combination.title)
    listed = "; ".join(
        f"({number}) {', '.join(titles)}: {reason}" for number, (reason, titles) in enumerate(reasons.items(), 1)
    )
    way_out = "change the plan" if skipping else "change them, or leave them out with skip_impossible: true"
    return f"{len(impossible)} of {count} combinations are impossible: {listed}. Please {way_out}."


def _refuse_twins(combinations: Sequence[Combination], plan: ComparisonPlan) -> None:
    """Refuse two names for one run: it would be trained once and counted twice."""
    seen: dict[str, Combination] = {}
    for combination in combinations:
        recipe = combination.recipe(plan, 0)
        key = repr([recipe["student"], recipe["stages"], combination.variant.shares])
        if key in seen:
            raise RecipeError(f"'{seen[key].title}' and '{combination.title}' are the same run; leave one out.")
        seen[key] = combination
