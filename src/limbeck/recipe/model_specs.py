"""What a recipe says of its models: the teacher, the student, and what the student starts from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from limbeck.core.yaml import Strict
from limbeck.recipe.value_types import Name, Place, Whole

LayerStrategy = Literal["random", "first", "last", "uniform", "ends"]


class TeacherSpec(Strict):
    """The pretrained model that is distilled."""

    model: Place = Field(description="A local folder, a Hub name, or package:NAME for a model inside a Python package.")
    name: Name | None = Field(
        default=None, description="What the model card calls it, such as its Hub name; default: model."
    )
    revision: Name | None = Field(default=None, description="Branch, tag or commit of a Hub model.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Number format of the teacher's weights; auto: bfloat16 where training uses it.",
    )
    sharded: bool = Field(
        default=False,
        description="Shard its layers over the processes, where it does not fit on one device; every layer is then "
        "gathered for every batch.",
    )


class StageTeacherSpec(TeacherSpec):
    """The teacher of one stage: another model, or the student of an earlier stage (a teacher assistant)."""

    model: str = Field(default="", description="As the recipe's teacher.model; leave it out to name a stage.")
    stage: str | None = Field(
        default=None, description="Name of an earlier stage with a student of its own, which teaches here."
    )

    @model_validator(mode="after")
    def _one_of_the_two(self) -> StageTeacherSpec:
        if bool(self.model) == (self.stage is not None):
            raise ValueError("give either model (a folder or a name) or stage (an earlier stage), and not both")
        return self


class InitialiseSpec(Strict):
    """What the student starts from."""

    layers: LayerStrategy | list[Whole] = Field(
        default="random",
        description="random, or the teacher's layers to copy: first, last, uniform, ends, or a list such as [1, 3, 6].",
    )
    embeddings: Literal["auto", "copied", "projected", "random"] = Field(
        default="auto",
        description="The teacher's embeddings: copied, or projected onto their principal directions when narrower.",
    )
    checkpoint: Place | None = Field(default=None, description="An earlier student of the same shape to start from.")


class ShapeSpec(Strict):
    """A student's shape, every field by name."""

    layers: int = Field(ge=1, le=1000, description="Number of Transformer blocks.")
    hidden: int = Field(ge=1, le=65536, description="Width of the hidden states.")
    heads: int | None = Field(
        default=None, ge=1, le=65536, description="Attention heads; default: 12 where it divides, else hidden/64."
    )
    ffn: int | None = Field(
        default=None, ge=1, le=4 * 65536, description="Width of the feed-forward layer; default: 4 x hidden."
    )
    embedding: int | None = Field(
        default=None, ge=1, le=65536, description="Width of factorised embeddings; default: as hidden."
    )


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
