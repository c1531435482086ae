"""The recipe: one document that describes a run from teacher to student.

Field descriptions are the documentation: they become the JSON schema that editors complete from.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from limbeck.errors import LimbeckError
from limbeck.methods.registry import METHODS
from limbeck.strict import Strict

LayerStrategy = Literal["random", "first", "last", "uniform", "ends"]


class TeacherSpec(Strict):
    """The pretrained model that is distilled."""

    model: str = Field(description="A local folder, a Hub name, or package:NAME for a model inside a Python package.")
    name: str | None = Field(
        default=None, description="What the model card calls it, such as its Hub name; default: model."
    )
    revision: str | None = Field(default=None, description="Branch, tag or commit of a Hub model.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Number format of the teacher's weights; auto: bfloat16 where training uses it.",
    )


class InitialiseSpec(Strict):
    """What the student starts from."""

    layers: LayerStrategy | list[int] = Field(
        default="random",
        description="random, or the teacher's layers to copy: first, last, uniform, ends, or a list such as [1, 3, 6].",
    )
    embeddings: Literal["auto", "copied", "projected", "random"] = Field(
        default="auto",
        description="The teacher's embeddings: copied, or projected onto their principal directions when narrower.",
    )
    checkpoint: str | None = Field(default=None, description="An earlier student of the same shape to start from.")


class ShapeSpec(Strict):
    """A student's shape, every field by name."""

    layers: int = Field(ge=1, le=1000, description="Number of Transformer blocks.")
    hidden: int = Field(ge=1, le=65536, description="Width of the hidden states.")
    heads: int | None = Field(
        default=None, ge=1, description="Attention heads; default: 12 where it divides, else hidden/64."
    )
    ffn: int | None = Field(default=None, ge=1, description="Width of the feed-forward layer; default: 4 x hidden.")
    embedding: int | None = Field(default=None, ge=1, description="Width of factorised embeddings; default: as hidden.")


class StudentSpec(Strict):
    """The model that is made."""

    shape: str | ShapeSpec = Field(description='"layers x hidden" such as "6x384", a preset, or every field by name.')
    initialise: InitialiseSpec = Field(default_factory=InitialiseSpec, description="What the student starts from.")
    dropout: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Dropout while distilling; default: the teacher's. The saved student always has the teacher's.",
    )
    untrained: Literal["random", "teacher"] = Field(
        default="random",
        description="What parameters that no stage trains hold in the saved student: their random start, or the "
        "teacher's values where shapes allow.",
    )


class TextSpec(Strict):
    """How text is cut; a stage may set these anew."""

    unit: Literal["document", "paragraph", "sentence"] | None = Field(
        default=None, description="What is never joined with its neighbour; default: document."
    )
    length: int | None = Field(
        default=None,
        ge=4,
        le=1_000_000,
        description="Longest block in tokens, special tokens included; default: 128.",
    )
    join: bool | None = Field(
        default=None, description="Join units into blocks of exactly `length` tokens; default: no."
    )
    minimum_tokens: int | None = Field(
        default=None, ge=1, description="Drop blocks with fewer content tokens; default: 4."
    )


class AugmentSpec(Strict):
    """How a stage changes the text that teacher and student read."""

    replace_tokens: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of tokens replaced by random words of the vocabulary; helps where the text is narrow.",
    )


class CorpusSpec(TextSpec):
    """The text that is distilled on."""

    sources: list[str] = Field(
        min_length=1,
        description="Files, folders, globs, hub:NAME data sets, or installed-docs (docstrings of installed packages).",
    )
    text_column: str = Field(default="text", description="The column of text in jsonl, parquet and Hub data.")
    held_out: float = Field(
        default=0.01, ge=0, lt=1, description="Share of documents kept out of training for held-out figures."
    )
    max_documents: int | None = Field(default=None, ge=1, description="Use no more documents than this.")

    @field_validator("sources", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class StageSpec(Strict):
    """One stage: a method and how long to train with it."""

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        description="Name in logs and folders, of letters, digits, - and _; default: the method's.",
    )
    method: dict[str, Any] = Field(description="The method's name, and its options beside it.")
    text: TextSpec = Field(default_factory=TextSpec, description="How this stage cuts the corpus.")
    augment: AugmentSpec = Field(default_factory=AugmentSpec, description="How this stage changes its text.")
    freeze: list[Literal["embeddings"]] = Field(
        default_factory=list, description="Parts of the student that this stage does not train."
    )
    training: dict[str, Any] = Field(
        default_factory=dict, description="Fields of transformers.TrainingArguments, by their own names."
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
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{place}: {message}" if place else message) from None
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
    batch_sizes: list[int] = Field(default=[1, 32], min_length=1, description="Batch sizes for the latency.")
    length: int = Field(default=128, ge=4, description="Tokens a row for the latency; longest text for the quality.")
    pairs: int = Field(default=1500, ge=10, description="Sentence pairs for the agreement.")
    retrieval_pairs: int = Field(default=700, ge=10, description="Pool of the retrieval.")
    latency_seconds: float = Field(default=12.0, gt=0, le=600, description="Time for all latencies together.")


class Recipe(Strict):
    """A run: teacher, student, corpus, stages and evaluation."""

    name: str = Field(default="run", description="Name of the run.")
    seed: int = Field(default=42, ge=0, lt=2**32, description="Seed of every random stream of the run.")
    output: str | None = Field(default=None, description="The run's folder; a new one.")
    teacher: TeacherSpec
    student: StudentSpec
    corpus: CorpusSpec | None = Field(default=None, description="The text; not needed without stages.")
    stages: list[StageSpec] = Field(
        default_factory=list, description="Trained one after the other; none keeps the initialised student."
    )
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)

    @model_validator(mode="after")
    def _stages_need_text(self) -> Recipe:
        if self.stages and self.corpus is None:
            raise ValueError("corpus is missing: stages need text, for example {sources: [installed-docs]}")
        titles = [stage.title for stage in self.stages]
        if len(set(titles)) < len(titles):
            raise ValueError(f"two stages have the same name in {titles}; give each stage a name of its own")
        return self
