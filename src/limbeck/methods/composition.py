"""What a method is: weighted terms over named streams, composed for a student and a teacher of known shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from limbeck.core.yaml import Strict
from limbeck.methods.head_groups import HeadGroups
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey
from limbeck.objectives.registry import OBJECTIVES

Task: TypeAlias = Literal["text", "classification", "regression", "question_answering"]
LABELLED_TASKS: tuple[Task, ...] = ("classification", "regression", "question_answering")


@dataclass(frozen=True)
class Pairing:
    """What a method is composed for: a student and a teacher of known shapes, and the task of the corpus.

    Args:
        student: The student's shape.
        teacher: The teacher's shape.
        task: `"text"` for a corpus without labels, else the kind of its labels.
        layer_cosines: For each teacher layer the cosine between its input and its output, where it was measured.
    """

    student: Shape
    teacher: Shape
    task: Task = "text"
    layer_cosines: tuple[float, ...] | None = None


@dataclass(frozen=True)
class LearnedMap:
    """A trainable linear map from student width to teacher width; it belongs to the run, never to the student.

    Args:
        inputs: Width of the student's stream.
        outputs: Width of the teacher's stream.
        heads: Number of relation heads with a map each, from `inputs / heads` to `outputs / heads`; None is one map
            for the whole width.
    """

    inputs: int
    outputs: int
    heads: int | None = None


Rows: TypeAlias = Literal["token", "label", "sample"]


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
        teacher_heads: How the teacher's attention heads are merged first, if they are.
        normalise: Give the rows of both models unit length first.
        rows: Which rows of logits count, for objectives over rows: every valid token, the labelled ones, or all rows
            of every sample.
        cost_attention: Temperature with which the weights of the layers follow their costs, for objectives over all
            layers; None keeps the weights equal.
    """

    name: str
    objective: str
    student: tuple[StreamKey, ...]
    teacher: tuple[StreamKey, ...]
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    learned_map: LearnedMap | None = None
    teacher_heads: HeadGroups | None = None
    normalise: bool = False
    rows: Rows = "token"
    cost_attention: float | None = None

    @property
    def unit(self) -> str:
        """What the term's count is proportional to; see `Objective.unit`."""
        unit = OBJECTIVES[self.objective].unit
        return self.rows if unit == "row" else unit

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
    """Turns options into terms for a student, a teacher and a task.

    Raises:
        RecipeError: if these shapes cannot be distilled this way, saying what to change.
    """

    def __call__(self, options: OptionsT, pairing: Pairing) -> list[Term]:
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
        tasks: The tasks it can be composed for, the most usual first.
        stages: The stages that make it up, each a method's name and options, where it is more than one.
    """

    name: str
    summary: str
    options: type[MethodOptions]
    compose: Compose[OptionsT]
    citation: Citation | None = None
    tasks: tuple[Task, ...] = ("text", *LABELLED_TASKS)
    stages: tuple[Mapping[str, Any], ...] = ()
