"""Cells: one run of a comparison each, and what makes two of them the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.comparison.method_entry import Variant
from limbeck.comparison.plan import ComparedStudent, ComparisonPlan
from limbeck.core.files import fingerprint

RUNS = "runs"
_NOT_COMPUTED = ("name", "output", "evaluation")
"""Keys of a recipe that change nothing that is computed."""


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
        """It in a few words."""
        return f"{self.variant.title} on {self.student.title}"

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
        seed: Of start, data order and dropout.
        steps: Of each stage.
        recipe: What `limbeck.distill` is given, without the folder.
    """

    combination: Combination
    seed: int
    steps: tuple[int, ...]
    recipe: dict[str, Any]

    @property
    def id(self) -> str:
        """Hash of everything that is computed: neither titles nor places are part of it."""
        return fingerprint({key: value for key, value in self.recipe.items() if key not in _NOT_COMPUTED})

    @property
    def title(self) -> str:
        """It in a few words."""
        return f"{self.combination.title}, seed {self.seed}"

    def folder(self, comparison: Path) -> Path:
        """Return the run's folder: a readable name that follows from the recipe alone, and its identity."""
        shape = self.recipe["student"]["shape"]
        size = shape if isinstance(shape, str) else f"{shape['layers']}x{shape['hidden']}"
        methods = "+".join(dict.fromkeys(stage["method"]["name"] for stage in self.recipe["stages"])) or "start"
        name = re.sub(r"[^\w+.-]+", "-", f"{size}-{methods}-seed{self.seed}")
        return comparison / RUNS / f"{name}-{self.id[:10]}"


def combine(plan: ComparisonPlan) -> list[Combination]:
    """Return every student with every method and mapping, student by student."""
    variants = [variant for entry in plan.methods for variant in entry.variants()]
    return [Combination(student, variant) for student in plan.students for variant in variants]
