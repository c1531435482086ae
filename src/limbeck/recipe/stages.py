"""One stage of a recipe: a method, how long to train with it, and what to do about steps that go wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from limbeck.core.fields import MOST, Grown, Name
from limbeck.core.mistakes import explain
from limbeck.core.strict import Strict
from limbeck.corpus.settings import AugmentSpec, StageTextSpec
from limbeck.errors import LimbeckError
from limbeck.methods.registry import read_method
from limbeck.recipe.corpus import Corpus
from limbeck.recipe.models import StageTeacherSpec, Student


class GuardSpec(Strict):
    """Policies for losses that are no use and for memory that does not suffice.

    They decide how failures are handled, not the results of a run without one: a resumed run may change them.
    """

    on_bad_loss: Literal["stop", "skip"] = Field(
        "stop",
        description=(
            "What to do at a step whose loss or gradient is infinite or NaN, or whose loss explodes: stop the run, or "
            "skip the step, which leaves weights and optimizer as they are. The batch is saved either way."
        ),
    )
    explosion_factor: float | None = Field(None, gt=1, le=MOST)
    """A loss above this many times the median of the last 64 good steps counts as exploded; default: none does."""
    skips_in_a_row: int = Field(10, ge=1, le=MOST)
    """Number of steps in a row that may be skipped before the run stops."""
    on_out_of_memory: Literal["stop", "split"] = Field(
        "stop",
        description=(
            "What to do when a batch does not fit the device: stop the run, or run this batch and all later ones in "
            "smaller pieces whose gradients are summed."
        ),
    )


class StageSpec(Grown):
    """One stage: a method and how long to train with it."""

    name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    """Name in logs and folders, of letters, digits, - and _; default: the method's."""
    method: dict[str, Any]
    """The method's name, with its options beside it."""
    teacher: StageTeacherSpec | None = None
    """The stage's teacher; default: the recipe's."""
    layers_from: Name | None = Field(
        None,
        description=(
            "Of several teachers, the name of the one whose layers and tokens the stage's terms read; all together "
            "give the sentence vectors and the scores of texts."
        ),
    )
    added = frozenset({"layers_from"})
    """Keys that came after the first release; a document has them only where they are given."""
    student: Student | None = Field(
        None,
        description=(
            "A student of this stage alone, such as a teacher assistant, which later stages may name as their teacher; "
            "default: the recipe's student, trained further."
        ),
    )
    corpus: Corpus | None = None
    """The stage's corpus; default: the recipe's."""
    text: StageTextSpec = Field(default_factory=StageTextSpec)
    """How this stage cuts the corpus."""
    augment: AugmentSpec = Field(default_factory=AugmentSpec)
    """How this stage changes its text."""
    freeze: list[Literal["embeddings"]] = Field(default_factory=list)
    """Parts of the student that this stage does not train."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Fields of transformers.TrainingArguments, by their own names."""
    guard: GuardSpec = Field(default_factory=GuardSpec)
    """What this stage does about bad losses and missing memory."""

    @field_validator("method", mode="before")
    @classmethod
    def _name_alone_is_a_method(cls, value: Any) -> Any:
        """Take a text for the name of a method without options."""
        if isinstance(value, str):
            return {"name": value}
        return value

    @field_validator("method")
    @classmethod
    def _known_method_and_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse a method or an option that does not exist."""
        if not isinstance(value.get("name"), str):
            raise ValueError("'method' needs a name, for example {name: minilmv2}")
        try:
            read_method(value)
        except LimbeckError as error:
            raise ValueError(str(error)) from None
        except ValidationError as error:
            # The explanation begins with the key of the mistake, or with "recipe: " for the options as a whole.
            raise ValueError(explain(error).removeprefix("recipe: ")) from None
        return value

    @property
    def title(self) -> str:
        """The stage's name in logs and folders."""
        return self.name or str(self.method["name"])


def method_alone(value: Any) -> Any:
    """Return the keys of a stage that is given by its method's name alone; for validators."""
    if isinstance(value, str):
        return {"method": value}
    return value


Stage: TypeAlias = Annotated[StageSpec, BeforeValidator(method_alone, json_schema_input_type=StageSpec | str)]
"""A stage, or only its method's name."""
