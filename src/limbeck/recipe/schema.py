"""The recipe: one document that describes a run from teacher to student.

The docstring below a field, or its description, is the documentation: it becomes the JSON schema that editors complete
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from limbeck.core.fields import Grown, Name, Place
from limbeck.recipe.corpus import Corpus
from limbeck.recipe.evaluation import EvaluationSpec
from limbeck.recipe.models import CombineSpec, Member, Student, Teacher, model_alone
from limbeck.recipe.stages import Stage
from limbeck.recipe.teacher_targets import corpus_of_targets, target_file_of

NOT_COMPUTED = {"name", "output", "evaluation", "reasons"}
"""Keys of a recipe that change nothing that is computed."""


def _without_needed_teacher(schema: dict[str, Any]) -> None:
    """Let editors take a recipe without `teacher`: `teachers` names one too."""
    schema["required"] = [key for key in schema.get("required", ()) if key != "teacher"]


class Recipe(Grown):
    """A run: teacher, student, corpus, stages and evaluation."""

    name: Name = "run"
    """Name of the run."""
    seed: int = Field(42, ge=0, lt=2**32)
    """Seed of every random stream of the run."""
    output: Place | None = None
    """Folder of the run, new or empty."""
    teacher: Teacher
    """The pretrained model that is distilled, or only its name."""
    teachers: dict[Name, Member] | None = Field(
        None,
        description=(
            "Several teachers in place of one, by names of yours: models, or only their names, with a weight each. The "
            "first is also where the student starts, and the student has its tokenizer."
        ),
    )
    combine: CombineSpec | None = None
    """How several teachers say one thing of a text; default: concatenated vectors, mean probabilities."""
    student: Student
    """The model that is made, or only its shape."""
    corpus: Corpus | None = None
    """The text, or only its sources; not needed without stages."""
    stages: list[Stage] = Field(default_factory=list)
    """The stages, trained one after the other; without any, the student is saved as it was initialised."""
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
    reasons: dict[str, str] | None = None
    """Reasons for the values of a chosen recipe, by the paths of the keys (stages.0.method); for readers only."""
    added = frozenset({"reasons", "teachers", "combine"})
    """Keys that came after the first release; a document has them only where they are given."""

    model_config = ConfigDict(json_schema_extra=_without_needed_teacher)

    def _derived_keys(self) -> frozenset[str]:
        """The teacher, where it is the first of several."""
        if self.teachers is None:
            return frozenset()
        return frozenset({"teacher"})

    @model_validator(mode="before")
    @classmethod
    def _first_of_several(cls, value: Any) -> Any:
        """Make the first of several teachers the recipe's, from which the student starts."""
        has_several = isinstance(value, Mapping) and value.get("teachers") is not None
        if not has_several:
            return value
        if value.get("teacher") is not None:
            raise ValueError(
                "give only one of 'teacher' and 'teachers': with several, the student starts from the first of "
                "'teachers'"
            )
        teachers = value["teachers"]
        if not isinstance(teachers, Mapping) or len(teachers) < 2:
            raise ValueError(
                "'teachers' needs at least two teachers, each under a name of your choice: {a: {model: A}, b: "
                "{model: B}}"
            )
        # The recipe's teacher has no weight. What is no teacher at all is left to the type of the field.
        first = model_alone(next(iter(teachers.values())))
        if isinstance(first, Mapping):
            first = {key: part for key, part in first.items() if key != "weight"}
        return {**value, "teacher": first}

    @model_validator(mode="after")
    def _check_keys_of_several(self) -> Recipe:
        """Refuse `combine` and `layers_from`, which are for several teachers, where `teachers` does not name them."""
        # `teachers` has two or more, see `_first_of_several`.
        names = [] if self.teachers is None else list(self.teachers)
        if self.combine is not None and not names:
            raise ValueError("'combine' applies only to several teachers: give 'teachers', or leave 'combine' out")
        for index, stage in enumerate(self.stages):
            if stage.layers_from is None:
                continue
            place = f"stages.{index}.layers_from '{stage.layers_from}'"
            if not names:
                raise ValueError(
                    f"{place} names one of several teachers, but the recipe has only one: give 'teachers', or "
                    "leave layers_from out"
                )
            if stage.teacher is not None:
                raise ValueError(
                    f"{place} names one of the recipe's teachers, but this stage has a 'teacher' of its own: leave "
                    "one of the two out"
                )
            if stage.layers_from not in names:
                raise ValueError(f"{place} is not one of the teachers: {', '.join(names)}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _texts_of_the_teacher(cls, value: Any) -> Any:
        """If the teacher is a file of texts and targets, complete the recipe's corpus by it.

        Without a corpus, it has the texts of the file. A given one keeps its text, and gets the task that scores need.
        Parts of another type than they should have are left to the types of the fields, which refuse them.
        """
        if not isinstance(value, Mapping):
            return value
        file = target_file_of(value.get("teacher"))
        stages = value.get("stages")
        if file is None or not isinstance(stages, list) or not stages:
            return value
        # Stages share the recipe's corpus. The method of the first one says whether its rows are of a task.
        first_stage = stages[0]
        method = first_stage.get("method") if isinstance(first_stage, Mapping) else None
        return {**value, "corpus": corpus_of_targets(file, method, value.get("corpus"))}

    @model_validator(mode="after")
    def _stages_fit_together(self) -> Recipe:
        """Refuse stages without text, without the recipe's student, with unknown teachers, or of the same name."""
        if self.corpus is None and any(stage.corpus is None for stage in self.stages):
            raise ValueError(
                "'corpus' is missing, but stages need text: give it, for example as {sources: [installed-docs]}"
            )
        titles = [stage.title for stage in self.stages]
        with_own_student = [stage.title for stage in self.stages if stage.student is not None]
        if with_own_student and len(with_own_student) == len(self.stages):
            raise ValueError(
                f"no stage trains the recipe's student, because the stages {', '.join(with_own_student)} each have "
                "a 'student' of their own: leave 'student' out of one stage"
            )
        # A stage may be taught by the student of an earlier stage, if that stage has one of its own.
        for index, stage in enumerate(self.stages):
            if stage.teacher is None or stage.teacher.stage is None:
                continue
            possible_titles = [title for title in titles[:index] if title in with_own_student]
            if stage.teacher.stage not in possible_titles:
                raise ValueError(
                    f"stages.{index}.teacher.stage '{stage.teacher.stage}' is not an earlier stage with a student "
                    f"of its own; such stages are: {', '.join(possible_titles) or 'none'}"
                )
        if len(set(titles)) < len(titles):
            raise ValueError(f"two stages have the same name in {titles}; give each stage its own 'name'")
        return self
