"""Tasks by name: the built-in ones in `data/tasks`, and the files in which users describe theirs.

A built-in task is one more file of the dialect in which users describe their tasks (docs/evaluation_tasks.md).
The files are read when a task is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from limbeck.core.beside import tried_beside
from limbeck.core.mistakes import mistakes_of
from limbeck.core.registry import Registry
from limbeck.core.yaml import read_document
from limbeck.errors import CorpusError, RecipeError, suggestion
from limbeck.evaluation.shipped_data import DATA
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.kinds.task import Task

PUBLISHED = "the published set has"
"""In a note on a split of which other rows are there than were published, before how many."""
ASSEMBLED = "assembled from"
"""In a note on a split of which some parts are missing, before how many there are."""
DRAWN = "drawn"
"""At the end of a note on a split of which not all rows were scored."""


class _BuiltInTask(TaskDefinition):
    """A task of the package: the groups that `--tasks` knows it by, and its place among the others."""

    listed_in: tuple[str, ...] = ()
    order: int


@cache
def _built_in() -> list[_BuiltInTask]:
    """Return the built-in tasks in their order; of equal ones, in that of their names."""
    definitions = [_read(path, _BuiltInTask) for path in (DATA / "tasks").glob("*.yaml")]
    return sorted(definitions, key=lambda definition: (definition.order, definition.name))


def _definitions() -> Iterator[tuple[str, TaskDefinition]]:
    """Yield the name and the description of each built-in task."""
    for definition in _built_in():
        yield definition.name, definition


def _tasks() -> Iterator[tuple[str, Task]]:
    """Yield the name and the facts of each built-in task."""
    for definition in _built_in():
        yield definition.name, definition.task


def _groups() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the tasks of each group."""
    tasks_of_group: dict[str, list[str]] = {}
    for definition in _built_in():
        for group in definition.listed_in:
            tasks_of_group.setdefault(group, []).append(definition.name)
    for group, names in tasks_of_group.items():
        yield group, tuple(names)


DEFINITIONS: Registry[TaskDefinition] = Registry("task", source=_definitions)
"""Name to task and sources."""

TASKS: Registry[Task] = Registry("task", source=_tasks)
"""Name to task."""

TASK_GROUPS: Registry[tuple[str, ...]] = Registry("group of tasks", source=_groups)
"""Name of a group to its tasks; `chinese` has those of ELM's table 7."""


def check_trainable(task: Task) -> None:
    """Refuse a task of a head without a split to train on.

    Raises:
        RecipeError: saying how to give one.
    """
    if task.train is None:
        raise RecipeError(
            f"{task.title} has no split to train on: add a split 'train' to the task's files, or score models "
            "without training (--as-is)."
        )


def find_task(name: str) -> TaskDefinition:
    """Return a task and its sources.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes a task.

    Raises:
        RecipeError: for an unknown task, or a description that is wrong.
        CorpusError: for a file that cannot be read.
    """
    if is_own_task(name):
        return read_own_task(Path(name).expanduser())
    return DEFINITIONS[name]


def is_own_task(name: str) -> bool:
    """Whether a name is the path of a YAML file that describes a task."""
    return _is_yaml(name) and evaluator_named(name) is None


def _is_yaml(name: str) -> bool:
    """Whether a name ends as those of YAML files do."""
    return Path(name).suffix.lower() in (".yaml", ".yml")


def folder_of_task(name: str) -> Path | None:
    """Return the folder of a user's description of a task; None for a built-in task."""
    if is_own_task(name):
        return Path(name).expanduser().parent
    return None


def evaluator_named(name: str) -> str | None:
    """Return the evaluator of a task that is named `NAME:TASK`; None for a task of rows."""
    evaluator, colon, _ = name.partition(":")
    if not colon:
        return None
    # TASK may be a YAML file, as in `mteb:reviews.yaml`. But a path of such a file may have a colon itself.
    if _is_yaml(name) and (not evaluator.isidentifier() or _is_file(name)):
        return None
    return evaluator


def parse_tasks(text: str, *, others: bool = False) -> list[str]:
    """Return the names in a comma-separated list, groups expanded, each once and in order.

    Args:
        text: Names of tasks and groups, and paths of YAML files, for example `"glue,squad,my_task.yaml"`.
        others: Whether tasks of other evaluators, `NAME:TASK`, may be among them.

    Raises:
        RecipeError: for a name that is neither, with a suggestion, for a file of rows, and for an empty list.
        CorpusError: for a YAML file that does not exist.
    """
    groups = dict(TASK_GROUPS.items())
    tasks: list[str] = []
    for part in text.split(","):
        name = part.strip()
        if not name:
            continue
        if is_own_task(name):
            if not _is_file(name):
                raise CorpusError(f"The task file '{name}' does not exist{tried_beside(name)}.")
            tasks.append(name)
        elif name in groups:
            tasks += groups[name]
        elif name in TASKS or (others and evaluator_named(name)):
            tasks.append(name)
        else:
            _refuse_file_of_rows(name)
            raise RecipeError(f"Unknown task '{name}'.{suggestion(name, [*groups, *TASKS])}")
    if not tasks:
        raise RecipeError(f"'{text}' names no task.{suggestion(text, [*groups, *TASKS])}")
    return list(dict.fromkeys(tasks))


def _refuse_file_of_rows(name: str) -> None:
    """Refuse the name of a file that is no task file, such as a table of rows; other names pass.

    Raises:
        RecipeError: with an example of a task file for the rows of the file.
    """
    from limbeck.corpus.files.file_kinds import suffix_of
    from limbeck.corpus.files.file_readers import FILE_KINDS  # Most names of tasks do not need the readers of files.

    is_there = _is_file(name)
    if not is_there and suffix_of(Path(name)) not in FILE_KINDS:
        return
    problem = "is no task file" if is_there else "is no task file, and does not exist"
    file = Path(name).name
    title = file.partition(".")[0]
    raise RecipeError(
        f"'{name}' {problem}; describe your own rows in a task file, such as {title}.yaml, and name that file. A task "
        f"file has lines such as `name: {title}`, `type: classification`, `columns: {{text: review, label: stars}}`, "
        f"`labels: [bad, good]`, `files: {{train: {file}, validation: {title}-dev.csv}}` (docs/evaluation_tasks.md, "
        "'A task of your own')."
    )


def _is_file(name: str) -> bool:
    """Whether a path is that of a file."""
    try:
        return Path(name).expanduser().is_file()
    except (RuntimeError, OSError):
        # The home of a user who is not known, or a name too long for the system.
        return False


def check_data(folder: Path | None) -> None:
    """Refuse a folder of tasks' files that is not there.

    Raises:
        CorpusError: for a missing folder.
    """
    if folder is not None and not folder.is_dir():
        raise CorpusError(
            f"The data folder '{folder}' does not exist{tried_beside(str(folder))}; give a folder that exists, "
            "or leave it out to read the task's files from the Hub."
        )


def read_own_task(path: Path) -> TaskDefinition:
    """Read a user's description of a task.

    Args:
        path: The YAML file.

    Raises:
        CorpusError: if the file cannot be read.
        RecipeError: if it is not YAML, has an unknown key, contradicts itself, has the name of a built-in task, or
            names a split of a task that it does not fit.
    """
    definition = _read(path, TaskDefinition)
    # Tables and published rows know a task by its name.
    if definition.name in TASKS:
        raise RecipeError(
            f"The task file '{path}': name: '{definition.name}' is already the name of a task of limbeck; give "
            "your task another name."
        )
    _check_other_task(path, "select", definition.select, definition)
    _check_other_task(path, "train", definition.train, definition)
    return definition


def _check_other_task(path: Path, key: str, split: str, definition: TaskDefinition) -> None:
    """Refuse the split of another task, `mnli:train`, if there is no such task, or its labels mean something else.

    Args:
        path: The YAML file.
        key: The key that names the split.
        split: Name of the split.
        definition: The description in the file.
    """
    other_task, colon, _ = split.rpartition(":")
    if not colon:
        return
    if other_task not in TASKS:
        problem = f"{key} names the split '{split}' of no task.{suggestion(other_task, TASKS)}"
        raise RecipeError(f"The task file '{path}': {problem.rstrip('.')}.")
    other = TASKS[other_task]
    if other.kind != definition.kind:
        raise RecipeError(
            f"The task file '{path}': {key} names '{split}', but {other.title} is a task of {other.kind}, not of "
            f"{definition.kind}; name a split of the same type."
        )
    # The rows of the split have the numbers that the other task gives its classes.
    if other.labels != definition.classes:
        raise RecipeError(
            f"The task file '{path}': {key} names '{split}', so its labels must be those of {other.title}, in the same "
            f"order: {', '.join(other.labels)}."
        )


D = TypeVar("D", bound=TaskDefinition)


def _read(path: Path, cls: type[D]) -> D:
    """Read a description by its schema, a built-in one or a user's.

    Raises:
        CorpusError: if the file cannot be read.
        RecipeError: for the first mistake in it.
    """
    content = read_document(path, f"The task file '{path}'", "give a YAML file that describes a task.", CorpusError)
    if not isinstance(content, dict):
        raise RecipeError(
            f"The task file '{path}' must be a mapping with the keys name, type, columns, and files or hub."
        )
    try:
        return cls.model_validate(content)
    except ValidationError as error:
        problem = mistakes_of(error)[0].removeprefix("recipe: ")
        if problem.startswith("labels is missing"):
            # It imports what reads files.
            from limbeck.evaluation.tasks.missing_labels import labels_line

            line = labels_line(path, content)
            if line:
                problem += f" Its training file has these, so add the line: {line}"
        raise RecipeError(f"The task file '{path}': {problem}") from None
