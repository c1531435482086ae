"""What a method is: weighted terms over named streams, composed for a student and a teacher of known shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey
from limbeck.objectives.registry import OBJECTIVES
from limbeck.strict import Strict


@dataclass(frozen=True)
class LearnedMap:
    """A trainable linear map from student width to teacher width; it belongs to the run, never to the student.

    Args:
        inputs: Width of the student's stream.
        outputs: Width of the teacher's stream.
    """

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Term:
    """One weighted objective over streams of the student and the teacher.

    Args:
        name: Unique in its method; the key under which its loss is logged.
        objective: Name in the objective registry.
        student: The student's streams, in the objective's order.
        teacher: The teacher's streams, in the same order.
        weight: Coefficient in the loss; not negative.
        options: Further keyword arguments of the objective, such as `heads`.
        learned_map: The map applied to the student's stream, if any.
    """

    name: str
    objective: str
    student: tuple[StreamKey, ...]
    teacher: tuple[StreamKey, ...]
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    learned_map: LearnedMap | None = None

    @property
    def batch_coupled(self) -> bool:
        """Whether the term couples the samples of a batch, so that a batch cannot be split."""
        return OBJECTIVES[self.objective].batch_coupled


@dataclass(frozen=True)
class Citation:
    """Where a method comes from, for the record and the model card."""

    title: str
    authors: str
    year: int
    url: str
    place: str
    bibtex: str


class MethodOptions(Strict):
    """Base of every method's options: unknown keys are refused, the nearest is named."""


OptionsT = TypeVar("OptionsT", bound=MethodOptions, contravariant=True)


class Compose(Protocol[OptionsT]):
    """Turns options into terms for two shapes.

    Raises:
        RecipeError: if these shapes cannot be distilled this way, saying what to change.
    """

    def __call__(self, options: OptionsT, student: Shape, teacher: Shape) -> list[Term]:
        """Make the terms."""
        ...


@dataclass(frozen=True)
class Method(Generic[OptionsT]):
    """A named way to distil: its options and the composition they stand for.

    Args:
        name: The name in recipes; equal to its file's name.
        summary: One sentence.
        options: The pydantic model of its options.
        compose: Makes the terms.
        citation: Its source, if it has one.
    """

    name: str
    summary: str
    options: type[MethodOptions]
    compose: Compose[OptionsT]
    citation: Citation | None = None
