"""`EvaluationRequest`: what is asked of an evaluation, checked as far as it can be without looking at any file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from limbeck.errors import RecipeError
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.task import Task
from limbeck.evaluation.tasks import TASKS, is_own_task, parse_tasks, read_own_task

MOST_WORKERS, MOST_SEEDS = 1024, 1000


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate.

    Attributes:
        models: Folders, `package:NAME` or Hub names.
        tasks: Names of tasks and groups, and task files, by commas.
        output: The folder of the evaluation; finished cells in it are not run again.
        data: Folder with the tasks' files; None for the Hub.
        preset: Name of a protocol.
        seeds: Runs of every grid point; None leaves it to the protocol.
        teacher: The model that the others are compared with; None for the first. It is evaluated too.
        workers: Processes that run cells.
        overrides: `setting=value` or `task.setting=value` each.
    """

    models: tuple[str, ...]
    tasks: str
    output: Path
    data: Path | None = None
    preset: str = "minilmv2"
    seeds: int | None = None
    teacher: str | None = None
    workers: int = 1
    overrides: tuple[str, ...] = field(default=())

    def all_models(self) -> list[str]:
        """Return every model that is evaluated, the one that the others are compared with first.

        Raises:
            RecipeError: if there is none.
        """
        if not self.models:
            raise RecipeError("Name at least one model to evaluate: a folder, package:NAME or a Hub name.")
        if self.teacher is None:
            return list(self.models)
        return [self.teacher, *(name for name in self.models if name != self.teacher)]

    def task_names(self) -> list[str]:
        """Return the tasks, groups expanded.

        Raises:
            RecipeError: for an unknown preset or task, or numbers out of range.
            CorpusError: for a task file that is not there.
        """
        PROTOCOLS[self.preset]
        for option, number, most in (("--workers", self.workers, MOST_WORKERS), ("--seeds", self.seeds, MOST_SEEDS)):
            if number is not None and not 1 <= number <= most:
                raise RecipeError(f"{option} is {number}; give 1 to {most:,}.")
        if not self.tasks.strip(" ,"):
            raise RecipeError("There is nothing to measure: give --tasks (names, groups, files), --speed, or both.")
        return parse_tasks(self.tasks)

    def tasks_asked(self) -> list[Task]:
        """Return the tasks as they are known before a row of them is read."""
        return [
            read_own_task(Path(name).expanduser()).definition.task if is_own_task(name) else TASKS[name]
            for name in self.task_names()
        ]

    def short_names(self) -> list[str]:
        """Return the names that settings and columns of the tasks go by: those in the file, for own tasks."""
        return [task.name for task in self.tasks_asked()]
