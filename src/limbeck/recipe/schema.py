"""The recipe: one document that describes a run from teacher to student.

Field descriptions are the documentation: they become the JSON schema that editors complete from.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from limbeck.core.yaml import Strict
from limbeck.errors import LimbeckError
from limbeck.methods.registry import METHODS
from limbeck.recipe.corpus_specs import AugmentSpec, CorpusSpec, TextSpec
from limbeck.recipe.explaining import explain
from limbeck.recipe.guard_spec import GuardSpec
from limbeck.recipe.model_specs import StageTeacherSpec, StudentSpec, TeacherSpec
from limbeck.recipe.value_types import Count, Name, Place


class StageSpec(Strict):
    """One stage: a method and how long to train with it."""

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        description="Name in logs and folders, of letters, digits, - and _; default: the method's.",
    )
    method: dict[str, Any] = Field(description="The method's name, and its options beside it.")
    teacher: StageTeacherSpec | None = Field(default=None, description="The stage's teacher; default: the recipe's.")
    student: StudentSpec | None = Field(
        default=None,
        description="A student of this stage alone, such as a teacher assistant, which later stages may name as their "
        "teacher; default: the recipe's student, trained on.",
    )
    corpus: CorpusSpec | None = Field(default=None, description="The stage's corpus; default: the recipe's.")
    text: TextSpec = Field(default_factory=TextSpec, description="How this stage cuts the corpus.")
    augment: AugmentSpec = Field(default_factory=AugmentSpec, description="How this stage changes its text.")
    freeze: list[Literal["embeddings"]] = Field(
        default_factory=list, description="Parts of the student that this stage does not train."
    )
    training: dict[str, Any] = Field(
        default_factory=dict, description="Fields of transformers.TrainingArguments, by their own names."
    )
    guard: GuardSpec = Field(
        default_factory=GuardSpec, description="What this stage does about bad losses and missing memory."
    )

    @field_validator("method", mode="before")
    @classmethod
    def _name_alone_is_a_method(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("method")
    @classmethod
    def _known_method_and_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("name"), str):
            raise ValueError("method needs a name, for example {name: minilmv2}")
        try:
            method = METHODS[value["name"]]
        except LimbeckError as error:
            raise ValueError(str(error)) from None
        try:
            method.options.model_validate({key: option for key, option in value.items() if key != "name"})
        except ValidationError as error:
            raise ValueError(explain(error).removeprefix("recipe: ")) from None
        return value

    @property
    def title(self) -> str:
        """The stage's name in logs and folders."""
        return self.name or str(self.method["name"])


class EvaluationSpec(Strict):
    """What is measured once the student is trained, teacher beside student."""

    enabled: bool = Field(default=True, description="Measure at all.")
    quality: bool = Field(default=True, description="Sentence-pair agreement and retrieval on held-out text.")
    speed: bool = Field(default=True, description="Latency, with teacher and student in turn.")
    pooling: Literal["auto", "mean", "cls"] = Field(
        default="auto",
        description="How sentence vectors are pooled; auto: as the teacher's folder says, else mean.",
    )
    batch_sizes: list[Annotated[Count, Field(le=65_536)]] = Field(
        default=[1, 32], min_length=1, description="Batch sizes for the latency."
    )
    length: int = Field(
        default=128, ge=4, le=1_000_000, description="Tokens a row for the latency; longest text for the quality."
    )
    pairs: int = Field(default=1500, ge=10, le=10_000_000, description="Sentence pairs for the agreement.")
    retrieval_pairs: int = Field(default=700, ge=10, le=1_000_000, description="Pool of the retrieval.")
    latency_seconds: float = Field(default=12.0, gt=0, le=600, description="Time for all latencies together.")


class Recipe(Strict):
    """A run: teacher, student, corpus, stages and evaluation."""

    name: Name = Field(default="run", description="Name of the run.")
    seed: int = Field(default=42, ge=0, lt=2**32, description="Seed of every random stream of the run.")
    output: Place | None = Field(default=None, description="The run's folder; a new one.")
    teacher: TeacherSpec
    student: StudentSpec
    corpus: CorpusSpec | None = Field(default=None, description="The text; not needed without stages.")
    stages: list[StageSpec] = Field(
        default_factory=list, description="Trained one after the other; none keeps the initialised student."
    )
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)

    @model_validator(mode="after")
    def _stages_fit_together(self) -> Recipe:
        if self.corpus is None and any(stage.corpus is None for stage in self.stages):
            raise ValueError("corpus is missing: stages need text, for example {sources: [installed-docs]}")
        titles = [stage.title for stage in self.stages]
        own = [stage.title for stage in self.stages if stage.student is not None]
        if own and len(own) == len(self.stages):
            raise ValueError(f"no stage trains the recipe's student: stages {own} all have a student of their own")
        for index, stage in enumerate(self.stages):
            named = stage.teacher.stage if stage.teacher is not None else None
            earlier = [title for title in titles[:index] if title in own]
            if named is not None and named not in earlier:
                raise ValueError(
                    f"stages.{index}.teacher.stage '{named}' is no earlier stage with a student of its own; "
                    f"there is {', '.join(earlier) or 'none'}"
                )
        if len(set(titles)) < len(titles):
            raise ValueError(f"two stages have the same name in {titles}; give each stage a name of its own")
        return self
