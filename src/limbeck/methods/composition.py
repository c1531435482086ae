"""Methods as data: weighted terms over named streams, composed for a student and a teacher of known shapes.

What a method is made of can be imported from here: `Term`, `Pairing`, options, citations and transforms.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from limbeck.core.kinds import own_kind_like
from limbeck.methods.cards import RECIPE_CARDS, read_card
from limbeck.methods.citation import COMPARATIVE_STUDY, Citation, cite, paper
from limbeck.methods.options import HeadCount, LayerChoice, MappingChoice, MethodOptions, Temperature, Weight
from limbeck.methods.pairing import LABELLED_TASKS, Pairing, Task
from limbeck.methods.term import LearnedMap, Rows, Term
from limbeck.methods.transforms import AnnealedScores, AttendedLayers, Course, DrawnLayer, HeadGroups, Transform

__all__ = [
    "COMPARATIVE_STUDY",
    "LABELLED_TASKS",
    "RECIPE_CARDS",
    "AnnealedScores",
    "AttendedLayers",
    "Citation",
    "Compose",
    "Course",
    "DrawnLayer",
    "HeadCount",
    "HeadGroups",
    "LayerChoice",
    "LearnedMap",
    "MappingChoice",
    "Method",
    "MethodOptions",
    "Pairing",
    "Rows",
    "Task",
    "Temperature",
    "Term",
    "Transform",
    "Weight",
    "cite",
    "paper",
    "read_card",
]

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
        stages: For a method of several stages, the name and options of the method of each.
    """

    name: str
    summary: str
    options: type[MethodOptions]
    compose: Compose[OptionsT]
    citation: Citation | None = None
    tasks: tuple[Task, ...] = ("text", *LABELLED_TASKS)
    stages: tuple[Mapping[str, Any], ...] = ()

    def takes(self, task: Task) -> bool:
        """Return whether it can be composed for a task."""
        # A plugin's kind of task counts as the package's kind that has the same labels.
        return task in self.tasks or own_kind_like(task) in self.tasks


def __getattr__(name: str) -> Any:
    """Return the object under its former name, with a warning."""
    if name == "Target":
        warnings.warn("Target is called Transform: import that.", DeprecationWarning, stacklevel=2)
        return Transform
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
