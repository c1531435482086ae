"""`TextSpec`: how text is cut into blocks, the keys that a corpus and a stage of a recipe have in common."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from limbeck.core.fields import Grown, Length, Number
from limbeck.corpus.settings.lengths import LengthSchedule
from limbeck.errors import CorpusError

Unit: TypeAlias = Literal["document", "paragraph", "sentence"]
"""The unit of text that a block never crosses."""

Units: TypeAlias = Annotated[
    list[Literal["document", "paragraph", "sentence", "title", "question"]], Field(min_length=1)
]
"""Kinds of pieces of a text."""


class TextSpec(Grown):
    """How text is cut; a stage may set these anew."""

    unit: Unit | None = None
    """Unit of text that is never joined with its neighbour; default: document."""
    length: Length | None = None
    """Longest block in tokens, special tokens included; default: 128."""
    join: bool | None = None
    """Join units into blocks of exactly `length` tokens; default: no."""
    minimum_tokens: int | None = Field(None, ge=1, le=1_000_000)
    """Drop blocks with fewer content tokens; default: 4."""
    pairs: bool | None = None
    """Cut blocks as pairs of adjacent segments, [CLS] A [SEP] B [SEP], as BERT's preprocessing; default: no."""
    units: Units | None = Field(
        None,
        description=(
            "Instead of unit: several kinds of pieces that every document is cut into, such as [sentence, paragraph, "
            "title, question]; a piece of two kinds counts as the narrower one."
        ),
    )
    student_prompts: Literal["teacher", "none"] | None = Field(
        None,
        description=(
            "Whether the student also reads the prompts that the teacher's files put before texts, or only the teacher "
            "does; default: teacher."
        ),
    )
    student_length: Length | None = Field(
        None,
        description=(
            "For a student with another tokenizer than its teacher's: its longest row in its own tokens, while length "
            "counts the teacher's; default: twice the length, as far as the student has positions."
        ),
    )
    added = frozenset({"pairs", "units", "student_prompts", "student_length"})

    @model_validator(mode="after")
    def _unit_or_units(self) -> TextSpec:
        # What was not given may have a default beside the other.
        if {"unit", "units"} <= self.model_fields_set and self.unit is not None and self.units is not None:
            raise ValueError(
                f"'unit' ({self.unit}) and 'units' ({self.units}) both say into what text is cut: leave one of the "
                "two out"
            )
        return self


class StageTextSpec(TextSpec):
    """How a stage cuts the corpus; what it does not say is as in the corpus."""

    lengths: dict[Length, Number | str] | None = Field(
        None,
        description=(
            "Instead of length: lengths that follow each other in one training, the shortest first, each with its "
            "share of max_steps ({128: 0.9, 512: 0.1}) or its epochs ({128: 3 epochs, 512: 2 epochs})."
        ),
    )

    @property
    def schedule(self) -> LengthSchedule | None:
        """The lengths in order; None where there is one."""
        return None if self.lengths is None else LengthSchedule.read(self.lengths)

    @model_validator(mode="after")
    def _lengths_are_a_schedule(self) -> StageTextSpec:
        if self.lengths is not None and self.length is not None:
            raise ValueError(
                f"'length' ({self.length}) and 'lengths' both say how long texts may be: leave one of the two out"
            )
        try:
            _ = self.schedule
        except CorpusError as error:
            raise ValueError(str(error)) from None
        return self
