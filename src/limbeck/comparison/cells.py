"""Cells, the runs of a comparison: their recipes, identities and steps.

A *combination* is a student that is trained by one method with one layer mapping; with a seed it is a *cell*.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.comparison.methods import Variant
from limbeck.comparison.plan import ComparedStudent, ComparisonPlan
from limbeck.core import hashing
from limbeck.errors import RecipeError
from limbeck.models.families import Shape
from limbeck.recipe.schema import NOT_COMPUTED
from limbeck.recipe.training_arguments import build_arguments

_RUNS = "runs"
"""Folder of the runs in that of the comparison."""
_ID_CHARACTERS = 10
"""Number of characters of a cell's identity that are in the name of its folder."""


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
        """Return the recipe of a run; the runs of a comparison differ only in student, method and seed.

        Args:
            plan: The plan of the comparison.
            seed: The seed of the run.
            steps: Number of steps of each stage. None makes a recipe with one step for each stage, which serves to
                check a plan before its numbers of steps are known.
        """
        if steps is None:
            steps = [1] * len(self.variant.stages)
        stages = []
        for stage, steps_of_stage in zip(self.variant.stages, steps, strict=True):
            # The arguments of a stage win over those that all runs share.
            training = {**plan.training, **stage["training"], "max_steps": steps_of_stage}
            stages.append({**stage, "training": training})
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
        shape: Shape of the student.
        seed: Seed of the student's start, the order of the data and dropout.
        steps: Number of steps of each stage.
        recipe: The recipe that `limbeck.distill` is given, without the output folder.
        first_places: Parts of the recipe (teacher, corpus) with the paths that the comparison began with. They take
            precedence over `recipe` in the identity, so that finished runs are found again after a folder was moved.
    """

    combination: Combination
    shape: Shape
    seed: int
    steps: tuple[int, ...]
    recipe: dict[str, Any]
    first_places: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Hash of the parts of the recipe that decide the result; titles and folders are left out."""
        recipe = {**self.recipe, **self.first_places}
        computed = {key: value for key, value in recipe.items() if key not in NOT_COMPUTED}
        return hashing.fingerprint(computed)

    @property
    def title(self) -> str:
        """Combination and seed."""
        return f"{self.combination.title}, seed {self.seed}"

    def folder(self, comparison: Path) -> Path:
        """Return the run's folder: a readable name that follows from the recipe alone, and its identity."""
        shape = self.recipe["student"]["shape"]
        # A number or a word stands for layers of the model that the student starts from.
        size = str(shape)
        if isinstance(shape, Mapping):
            size = f"{shape['layers']}x{shape['hidden']}"
        methods = dict.fromkeys(stage["method"]["name"] for stage in self.recipe["stages"])
        # A method without stages trains nothing: its student stays as it starts.
        joined_methods = "+".join(methods) or "start"
        name = re.sub(r"[^\w+.-]+", "-", f"{size}-{joined_methods}-seed{self.seed}")
        return comparison / _RUNS / f"{name}-{self.id[:_ID_CHARACTERS]}"


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
    """Return the steps of each stage of a method, so that all methods read the same number of tokens.

    Stage k ends at the step nearest to (share_1 + … + share_k) x tokens. As each stage makes up for the rounding of
    those before it, a method reads the budget to within half a step.

    Args:
        tokens: The budget: number of tokens without padding that the whole method reads.
        shares: Share of the budget of each stage; they add up to 1.
        trainings: The training arguments of each stage.
        tokens_per_row: Mean length of the corpus' rows in tokens.

    Returns:
        Steps of each stage.

    Raises:
        RecipeError: if a stage's share is less than half a step.
    """
    steps: list[int] = []
    # Both up to the end of the present stage: the tokens that its whole steps read, and those that its share asks for.
    tokens_read = 0.0
    tokens_due = 0.0
    for share, training in zip(shares, trainings, strict=True):
        tokens_due += share * tokens
        tokens_per_step = rows_per_step(training) * tokens_per_row
        count = round((tokens_due - tokens_read) / tokens_per_step)
        if count < 1:
            raise RecipeError(
                f"budget.tokens {tokens} gives a stage {share * tokens:.0f} tokens, fewer than one step reads "
                f"(about {tokens_per_step:.0f}); raise budget.tokens, or lower "
                "training.per_device_train_batch_size."
            )
        steps.append(count)
        tokens_read += count * tokens_per_step
    return tuple(steps)
