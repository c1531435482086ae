"""The student, the teacher and the task that a method is composed for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from limbeck.core.kinds import KIND_NAMES, KindName, LabelKind, kind_of
from limbeck.models.families import Shape
from limbeck.models.teaching_facts import TeachingFacts

if TYPE_CHECKING:
    from limbeck.models.heads import Head
    from limbeck.models.sentences import SentencePooling

TEXT = "text"
"""The task of a corpus without labels."""

Task: TypeAlias = KindName
"""`TEXT`, or the name of a kind of task."""
LABELLED_TASKS: tuple[Task, ...] = KIND_NAMES
"""The package's kinds of tasks that can be trained."""


@dataclass(frozen=True)
class Pairing:
    """What a method is composed for: a student of a known shape, a teacher, and the task of the corpus.

    Args:
        student: The student's shape.
        teacher: The facts of the teacher.
        task: `"text"` for a corpus without labels, else the kind of its labels.
        layer_cosines: For each teacher layer the mean cosine between its input and its output; None if the teacher has
            not been measured.
        sentence: How the teacher makes sentence vectors; None if its files do not say so.
        labelled: Whether the rows of a kind of task have labels; without, only what the teacher says of them is taught.
    """

    student: Shape
    teacher: TeachingFacts
    task: Task = TEXT
    layer_cosines: tuple[float, ...] | None = None
    sentence: SentencePooling | None = None
    labelled: bool = True

    @property
    def teacher_shape(self) -> Shape:
        """The teacher's shape, for methods that read its layers.

        Raises:
            RecipeError: for a teacher that is not a model, such as vectors in a file.
        """
        return self.teacher.model_shape

    @property
    def label(self) -> LabelKind:
        """Kind of the corpus's labels; `"none"` of text."""
        return kind_of(self.task).label

    @property
    def has_labels(self) -> bool:
        """Whether the corpus is of rows of a kind of task, rather than of text; the rows may lack their labels."""
        return kind_of(self.task).has_labels

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are predicted, rather than a sample as a whole."""
        return not self.has_labels or kind_of(self.task).of_tokens

    @property
    def head(self) -> Head:
        """The head whose scores are taught: the task's head for labelled rows, the masked language model's for text."""
        return self.task if self.has_labels else "masked_lm"
