"""What a recipe says of its text: the sources, how they are cut or labelled, and how a stage changes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from limbeck.core.yaml import Strict
from limbeck.recipe.value_types import MOST, Name, Number, Place


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
        default=None, ge=1, le=1_000_000, description="Drop blocks with fewer content tokens; default: 4."
    )


class AugmentSpec(Strict):
    """How a stage changes the text that teacher and student read."""

    replace_tokens: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of tokens replaced by random words of the vocabulary; helps where the text is narrow.",
    )
    mask_tokens: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Share of tokens masked for masked language modelling, anew every epoch; default: 0.15 where a "
        "term of the method reads masked positions, else 0.",
    )


class TaskSpec(Strict):
    """The labels of a corpus: rows are distilled one by one, with a teacher that was fine-tuned on the task."""

    kind: Literal["classification", "regression", "question_answering"] = Field(description="What is predicted.")
    pair_column: Name | None = Field(default=None, description="Column of the second text, for tasks on pairs.")
    label_column: Name = Field(default="label", description="Column of the class (by name or number) or the value.")
    question_column: Name = Field(default="question", description="Question answering: column of the question.")
    context_column: Name = Field(default="context", description="Question answering: column of the passage.")
    answers_column: Name = Field(
        default="answers", description="Question answering: column of the answers, as SQuAD's."
    )
    stride: int = Field(
        default=64,
        ge=0,
        le=1_000_000,
        description="Question answering: tokens that neighbouring windows of a passage share.",
    )

    @model_validator(mode="after")
    def _columns_of_this_kind(self) -> TaskSpec:
        answers = ("question_column", "context_column", "answers_column", "stride")
        others = ("pair_column", "label_column") if self.kind == "question_answering" else answers
        for name in others:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} means nothing to {self.kind}: leave it out")
        return self


class MixSpec(Strict):
    """The shares of several sources, such as languages: by weights, or by their sizes to a power."""

    weights: list[Annotated[Number, Field(gt=0, allow_inf_nan=False)]] | None = Field(
        default=None, description="A weight for each source, in their order; they need not add up to 1."
    )
    exponent: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Shares proportional to size^exponent: 1 keeps the proportions, 0 makes all equal; XLM-R has 0.3.",
    )

    @model_validator(mode="after")
    def _one_of_the_two(self) -> MixSpec:
        if (self.weights is None) == (self.exponent is None):
            raise ValueError("a mix has weights or an exponent: give one of the two")
        return self


class CorpusSpec(TextSpec):
    """The text that is distilled on."""

    sources: list[Place] = Field(
        min_length=1,
        description="Files, folders, globs, addresses (https://, s3://), hub:NAME data sets, or installed-docs "
        "(docstrings of installed packages).",
    )
    text_column: Name = Field(default="text", description="The column of text in jsonl, parquet and Hub data.")
    held_out: float = Field(
        default=0.01, ge=0, lt=1, description="Share of documents kept out of training for held-out figures."
    )
    max_documents: int | None = Field(
        default=None, ge=1, le=MOST, description="Use no more documents (or rows) than this."
    )
    streaming: bool = Field(
        default=False, description="Read and tokenise while training, keeping nothing on disk; needs max_steps."
    )
    shuffle_buffer: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Streaming: blocks shuffled together in every process that reads; default: 10,000.",
    )
    mix: MixSpec | None = Field(
        default=None,
        description="Shares of the sources; default: every row once an epoch, or a stream's sources by their sizes.",
    )
    task: TaskSpec | None = Field(
        default=None, description="What the rows are labelled with; default: text without labels."
    )

    @field_validator("sources", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _stream_and_mix_fit(self) -> CorpusSpec:
        if self.shuffle_buffer is not None and not self.streaming:
            raise ValueError("shuffle_buffer is for streaming; a built corpus is shuffled as a whole: leave it out")
        if self.streaming and self.max_documents is not None:
            raise ValueError("max_documents is for a built corpus; a stream is as long as its training: leave it out")
        weights = self.mix.weights if self.mix is not None else None
        if weights is not None and len(weights) != len(self.sources):
            raise ValueError(f"mix.weights has {len(weights)} weights for {len(self.sources)} sources: give one each")
        for name in ("streaming", "mix"):
            if self.task is not None and getattr(self, name):
                raise ValueError(f"{name} is for text without labels: leave out {name}, or the task")
        return self

    @model_validator(mode="after")
    def _labelled_rows_are_not_cut(self) -> CorpusSpec:
        if self.task is not None:
            columns = [self.text_column, self.task.pair_column, self.task.label_column]
            if self.task.kind != "question_answering" and len(set(columns)) < len(columns):
                raise ValueError(f"text, pair and label are columns of their own, and these are {columns}: name three")
            for name in ("unit", "join", "minimum_tokens"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is for text without labels; with task every row stays whole: leave it out"
                    )
        return self
