"""`Protocol`: the settings of every task by one paper, and how that paper averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from limbeck.errors import RecipeError
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.evaluation.tasks.task import Task

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Protocol:
    """How a paper fine-tunes.

    Attributes:
        name: As it is asked for.
        source: Paper, sections and tables.
        silent: What the paper does not say, and what is taken instead.
        base: What holds for all tasks.
        changes: Settings by kind of task, by group and by task; the more particular wins, in this order.
        average: The columns of the paper's average; empty: of all tasks that are fine-tuned.
        papers: Whose published rows stand beside the results; empty: all of them.
    """

    name: str
    source: str
    silent: str
    base: Changes
    changes: Mapping[str, Changes] = field(default_factory=dict)
    average: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()

    def settings(self, task: Task, overrides: Sequence[tuple[str | None, Changes]] = ()) -> FineTuning:
        """Return the settings of a task.

        Args:
            task: The task.
            overrides: (task or None for all tasks, settings) each; those of one task win.

        Raises:
            RecipeError: for a setting that does not exist or cannot have its value.
        """
        values: dict[str, Any] = dict(self.base)
        for key in (task.kind, task.group, task.name):
            values |= self.changes.get(key, {})
        for wanted in (None, task.name):
            for name, change in overrides:
                if name == wanted:
                    values |= change
        return checked(values)


def checked(values: Changes) -> FineTuning:
    """Make settings of plain values.

    Raises:
        RecipeError: naming the first that is wrong.
    """
    try:
        return FineTuning.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = f"{first['loc'][0]}: " if first["loc"] else ""
        given = f" (got {str(first['input'])[:80]!r})" if first["loc"] else ""
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise RecipeError(f"--set {place}{message}{given}.") from None
