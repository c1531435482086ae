"""`ComparisonPlan`: one document that says what is compared, and what is the same for all."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from limbeck.comparison.measures import MeasuresSpec
from limbeck.comparison.method_entry import MethodEntry
from limbeck.core.yaml import Strict
from limbeck.recipe.schema import CorpusSpec, Name, StudentSpec, TeacherSpec

_BUDGETED = ("max_steps", "num_train_epochs")


class ComparedStudent(StudentSpec):
    """A student that every method trains, from the same start."""

    name: str | None = Field(default=None, min_length=1, description="What the tables call it; default: its shape.")

    @model_validator(mode="before")
    @classmethod
    def _a_shape_is_a_student(cls, data: Any) -> Any:
        if isinstance(data, str) or (isinstance(data, dict) and "shape" not in data and "layers" in data):
            return {"shape": data}
        return data

    @property
    def title(self) -> str:
        """What the tables call it."""
        if self.name is not None:
            return self.name
        return self.shape if isinstance(self.shape, str) else f"{self.shape.layers}x{self.shape.hidden}"

    def in_recipe(self) -> dict[str, Any]:
        """Return the student as a recipe has it."""
        return self.model_dump(mode="json", exclude={"name"})


class BudgetSpec(Strict):
    """How much every run trains."""

    tokens: int = Field(
        ge=1,
        description="Real tokens that every run reads, special tokens included, padding not; the stages of a method "
        "share them.",
    )


class ComparisonPlan(Strict):
    """A comparison: every method with every mapping makes every student with every seed."""

    name: Name = Field(default="comparison", description="Name of the comparison.")
    teacher: TeacherSpec
    corpus: CorpusSpec = Field(description="The text that all runs read.")
    students: list[ComparedStudent] = Field(
        min_length=1, description="Shapes, or shapes with initialise, dropout and a name."
    )
    methods: list[MethodEntry] = Field(min_length=1, description="Names, or names with options and layer mappings.")
    seeds: list[int] = Field(default=[1], min_length=1, description="Seeds of start, data order and dropout.")
    budget: BudgetSpec
    training: dict[str, Any] = Field(
        default_factory=dict, description="Fields of transformers.TrainingArguments that all runs share."
    )
    evaluation: MeasuresSpec = Field(default_factory=MeasuresSpec, description="What is measured of the students.")
    skip_impossible: bool = Field(
        default=False, description="Leave out combinations that cannot be, instead of refusing the plan."
    )

    @field_validator("methods", mode="before")
    @classmethod
    def _names_are_methods(cls, value: Any) -> Any:
        return (
            [{"name": entry} if isinstance(entry, str) else entry for entry in value]
            if isinstance(value, list)
            else value
        )

    @model_validator(mode="after")
    def _fits_together(self) -> ComparisonPlan:
        _no_twins("students", [student.title for student in self.students], "give each a name of its own")
        _no_twins("methods", [entry.shown for entry in self.methods], "give each a title of its own")
        _no_twins("seeds", self.seeds, "name each once")
        if any(not 0 <= seed < 2**32 - 100 for seed in self.seeds):
            raise ValueError(f"seeds {self.seeds} have to be between 0 and {2**32 - 101}")
        arguments = [self.training, *(entry.training for entry in self.methods)]
        arguments += [stage.training for entry in self.methods for stage in entry.stages or ()]
        for name in _BUDGETED:
            if any(name in given for given in arguments):
                raise ValueError(f"training.{name} is decided by budget.tokens: leave it out")
        if not any(variant.stages for entry in self.methods for variant in entry.variants()):
            raise ValueError("methods has no stage that trains; add a method")
        measures = self.evaluation
        if not (measures.tasks or measures.held_out.enabled):
            raise ValueError("evaluation names no task and held_out is off, so nothing would be compared")
        if self.teacher.revision is not None and measures.tasks and measures.teacher:
            raise ValueError(
                "teacher.revision cannot be evaluated; save that revision to a folder, or set evaluation.teacher: false"
            )
        return self


def _no_twins(place: str, names: list[Any], way_out: str) -> None:
    if twins := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two of the {place} are '{twins[0]}'; {way_out}")
