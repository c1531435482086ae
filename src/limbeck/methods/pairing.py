"""The student, the teacher and the task that a method is composed for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from limbeck.core.kinds import KIND_NAMES, KindName, LabelKind, kind_of
from limbeck.models.families import Shape

if TYPE_CHECKING:
    from limbeck.models.sentences import SentencePooling

Task: TypeAlias = Literal["text", KindName]
LABELLED_TASKS: tuple[Task, ...] = KIND_NAMES


@dataclass(frozen=True)
class Pairing:
    """What a method is composed for: a student and a teacher of known shapes, and the task of the corpus.

    Args:
        student: The student's shape.
        teacher: The teacher's shape.
        task: `"text"` for a corpus without labels, else the kind of its labels.
        layer_cosines: For each teacher layer the cosine between its input and its output, where it was measured.
        sentence: How the teacher makes sentence vectors, where its files say so.
    """

    student: Shape
    teacher: Shape
    task: Task = "text"
    layer_cosines: tuple[float, ...] | None = None
    sentence: SentencePooling | None = None

    @property
    def label(self) -> LabelKind:
        """Kind of the corpus's labels; `"none"` of text."""
        return kind_of(self.task).label

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are predicted, rather than a sample as a whole."""
        return self.task == "text" or kind_of(self.task).of_tokens
