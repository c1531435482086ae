"""`ComparisonPlan`, the schema of a comparison: what is compared, and what is the same for all runs."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from limbeck.comparison.methods import MethodEntry
from limbeck.core.fields import Name, Whole
from limbeck.core.strict import Strict
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.recipe.corpus import Corpus
from limbeck.recipe.models import ShapeSpec, StudentSpec, Teacher

_BUDGETED = ("max_steps", "max_minutes", "num_train_epochs")
"""Training arguments that the budget decides."""
_MOST_SEED = 2**32 - 101
"""Libraries take seeds below 2^32, and some runs add a few numbers to theirs."""


class ComparedStudent(StudentSpec):
    """A student that every method trains, from the same start.

    Attributes:
        name: What the tables call it; default: its shape.
    """

    name: str | None = Field(default=None, min_length=1)

    @property
    def title(self) -> str:
        """Its name in the tables."""
        if self.name is not None:
            return self.name
        if isinstance(self.shape, ShapeSpec):
            return f"{self.shape.layers}x{self.shape.hidden}"
        return str(self.shape)

    def in_recipe(self) -> dict[str, Any]:
        """Return the student as a recipe has it."""
        return self.model_dump(mode="json", exclude={"name"})


class BudgetSpec(Strict):
    """How much every run trains.

    Attributes:
        tokens: Real tokens that every run reads, special tokens included, padding not; the stages of a method share
            them.
    """

    tokens: int = Field(ge=1)


class ComparisonPlan(Strict):
    """A comparison: every method with every mapping makes every student with every seed.

    Attributes:
        name: Name of the comparison.
        corpus: The text that all runs read.
        students: Shapes, or shapes with initialise, dropout and a name.
        methods: Names, or names with options and layer mappings.
        seeds: Seeds of start, data order and dropout.
        training: Fields of transformers.TrainingArguments that all runs share.
        evaluation: What is measured of the students.
        skip_impossible: Leave out combinations that cannot be, instead of refusing the plan.
    """

    name: Name = "comparison"
    teacher: Teacher
    corpus: Corpus
    students: list[ComparedStudent] = Field(min_length=1)
    methods: list[MethodEntry] = Field(min_length=1)
    seeds: list[Whole] = Field(default=[1], min_length=1)
    budget: BudgetSpec
    training: dict[str, Any] = Field(default_factory=dict)
    evaluation: MeasuresSpec = Field(default_factory=MeasuresSpec)
    skip_impossible: bool = False

    @field_validator("methods", mode="before")
    @classmethod
    def _names_are_methods(cls, value: Any) -> Any:
        """Take a name alone for a method without options."""
        if not isinstance(value, list):
            return value
        return [{"name": entry} if isinstance(entry, str) else entry for entry in value]

    @model_validator(mode="after")
    def _fits_together(self) -> ComparisonPlan:
        """Refuse a plan that contradicts itself."""
        _refuse_repeated("students", [student.title for student in self.students], "give each a unique name")
        _refuse_repeated("methods", [entry.shown for entry in self.methods], "give each a unique title")
        _refuse_repeated("seeds", self.seeds, "name each once")
        if min(self.seeds) < 0 or max(self.seeds) > _MOST_SEED:
            raise ValueError(f"seeds {self.seeds} must be between 0 and {_MOST_SEED}")
        self._check_budget_decides_steps()
        trains_any = False
        for entry in self.methods:
            if any(variant.stages for variant in entry.variants()):
                trains_any = True
        if not trains_any:
            raise ValueError("'methods' has no stage that trains, so nothing would be learned: add a method")
        self._check_measures()
        return self

    def _check_budget_decides_steps(self) -> None:
        """Refuse training arguments that set the number of steps."""
        trainings = [self.training]
        for entry in self.methods:
            trainings.append(entry.training)
            trainings += [stage.training for stage in entry.stages or ()]
        for name in _BUDGETED:
            if any(name in training for training in trainings):
                raise ValueError(f"training.{name} follows from budget.tokens in a comparison: leave it out")

    def _check_measures(self) -> None:
        """Refuse a plan that measures nothing, or a teacher that cannot be evaluated on its tasks."""
        measures = self.evaluation
        if not (measures.tasks or measures.held_out.enabled):
            raise ValueError(
                "evaluation.tasks is empty and evaluation.held_out is off, so nothing would be compared: name a "
                "task, or set evaluation.held_out.enabled to true"
            )
        if self.teacher.revision is not None and measures.tasks and measures.teacher:
            raise ValueError(
                "a teacher with teacher.revision cannot be evaluated on tasks: save that revision to a folder and "
                "name the folder, or set evaluation.teacher: false"
            )


def _refuse_repeated(place: str, names: list[Any], way_out: str) -> None:
    """Refuse a name that comes twice.

    Args:
        place: The key of the plan with the names, for the message.
        names: The names, or seeds.
        way_out: What to do, for the message.
    """
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of the {place} are '{name}'; {way_out}")
