"""Every task by its name, and the groups that a user may ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from limbeck.core.registry import Registry
from limbeck.core.yaml import Strict, read_document
from limbeck.errors import CorpusError, RecipeError, suggestion
from limbeck.evaluation.built_in_tasks import (
    chinese_tasks,
    cmrc2018,
    cross_lingual_question_tasks,
    few_chinese_tasks,
    glue_tasks,
    question_tasks,
    similarity_tasks,
    xnli,
)
from limbeck.evaluation.task import (
    METRIC_NAMES,
    Columns,
    FileSource,
    HubSource,
    SplitFacts,
    SplitSource,
    Task,
    TaskDefinition,
    TaskKind,
)

DEFINITIONS: Registry[TaskDefinition] = Registry("task")
"""Name to task and sources."""

TASKS: Registry[Task] = Registry("task")
"""Name to task."""

for _definition in (
    *glue_tasks(),
    *question_tasks(),
    xnli(),
    *cross_lingual_question_tasks(),
    *chinese_tasks(),
    cmrc2018(),
    *few_chinese_tasks(),
    *similarity_tasks(),
):
    DEFINITIONS.register(_definition.task.name, _definition)
    TASKS.register(_definition.task.name, _definition.task)

_GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")

TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "glue": _GLUE,
    "glue_leaderboard": (*_GLUE, "ax"),
    "qa": ("squad", "squad2"),
    "cross_lingual": ("xnli", "mlqa", "xquad"),
    "chinese": ("cmnli", "csl", "cmrc2018"),
    "few_chinese": ("few_csl", "few_ocnli"),
    "similarity": ("stsb_cosine", "sick_cosine"),
}
"""Name of a group to its tasks; `chinese` has those of ELM's table 7."""


def is_own_task(name: str) -> bool:
    """Whether a name is the path of a YAML file that describes a task."""
    return Path(name).suffix.lower() in (".yaml", ".yml")


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (RuntimeError, OSError):  # The home of a user who is not known, or a name too long for the system.
        return False


def parse_tasks(text: str) -> list[str]:
    """Return the names in a comma-separated list, groups expanded, each once and in order.

    Args:
        text: Names of tasks and groups, and paths of YAML files, for example `"glue,squad,my_task.yaml"`.

    Raises:
        RecipeError: for a name that is neither, with a suggestion, and for an empty list.
        CorpusError: for a YAML file that does not exist.
    """
    found: dict[str, None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        if is_own_task(name):
            if not _is_file(name):
                raise CorpusError(f"The task file '{name}' does not exist.")
            found[name] = None
        elif name in TASK_GROUPS or name in TASKS:
            found |= dict.fromkeys(TASK_GROUPS.get(name, (name,)))
        else:
            raise RecipeError(f"Unknown task '{name}'.{suggestion(name, [*TASK_GROUPS, *TASKS])}")
    if not found:
        raise RecipeError(f"'{text}' names no task.{suggestion(text, [*TASK_GROUPS, *TASKS])}")
    return list(found)


# A task of the user's, described in YAML: files or Hub name, columns, type and metric.


_LONGEST_TITLE = 200
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

OwnType = Literal["classification", "regression", "pair", "question_answering", "similarity"]


class OwnColumns(Strict):
    """Names of the columns; those of question answering are SQuAD's unless said otherwise."""

    text: str | None = None
    pair: str | None = None
    label: str = "label"
    id: str | None = None
    context: str = "context"
    question: str = "question"
    answers: str = "answers"


class OwnHub(Strict):
    """A Hub data set, and which of its splits are which of the task's."""

    name: str = Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)?$")
    config: str | None = None
    revision: str | None = None
    splits: dict[str, str] = Field(min_length=1)


class OwnDescription(Strict):
    """A task as its author describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)
    type: OwnType
    title: str | None = None
    columns: OwnColumns = OwnColumns()
    labels: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    files: dict[str, str] | None = None
    hub: OwnHub | None = None
    language: str = "en"
    train: str = "train"
    select: str = "validation"
    unlabelled: tuple[str, ...] = ()
    no_answers: bool = False

    @field_validator("name")
    @classmethod
    def _is_of_no_other_task(cls, value: str) -> str:
        # Tables and published rows know a task by its name.
        if value in TASKS:
            raise ValueError(f"'{value}' is a task of limbeck; give the task another name")
        return value

    @field_validator("metric", mode="before")
    @classmethod
    def _one_metric_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        # YAML reads 0 and no as a number and a truth value.
        if isinstance(value, list):
            for label in value:
                if not isinstance(label, str | int) or isinstance(label, bool):
                    raise ValueError(f"the label {label!r} is not text: put it in quotation marks")
            return tuple(map(str, value))
        return value

    @field_validator("title", "language")
    @classmethod
    def _is_one_line(cls, value: str | None) -> str | None:
        if value is not None and not (value.isprintable() and 0 < len(value.strip()) <= _LONGEST_TITLE):
            raise ValueError(f"{value[:40]!r} is no line of 1 to {_LONGEST_TITLE} printable characters")
        return value

    @field_validator("files")
    @classmethod
    def _lie_here(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        # A description may come from anywhere, and reads nothing but what lies beside it or in the data folder.
        for split, name in (value or {}).items():
            parts = Path(name).parts
            if not parts or Path(name).is_absolute() or ".." in parts or not name.isprintable():
                raise ValueError(f"the file '{name[:80]}' of {split} has to lie beside the description or in --data")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> OwnDescription:
        if (self.files is None) == (self.hub is None):
            raise ValueError("give either files or hub")
        if not self.split_names:
            raise ValueError("files names no split: give at least one, such as validation")
        for split in self.split_names:  # Files of predictions are named after them.
            if not _SPLIT.fullmatch(split):
                raise ValueError(f"the split {split[:40]!r} has to be named by letters, digits, '.', '-' and '_'")
        if self.kind != "question_answering" and self.columns.text is None:
            raise ValueError("columns.text is missing: name the column of the text")
        if self.type in ("pair", "similarity") and self.columns.pair is None:
            raise ValueError(f"columns.pair is missing: the type {self.type} needs two texts")
        if self.kind == "classification" and len(set(self.labels)) < 2:
            raise ValueError("labels is missing: name two classes or more, in the order of their numbers")
        if len(set(self.labels)) < len(self.labels) or not all(label.strip() for label in self.labels):
            raise ValueError("labels have to differ, and none may be empty")
        if self.kind != "classification" and self.labels:
            raise ValueError(f"labels are for classification and pair, not for {self.type}")
        for metric in self.metric:
            if metric not in METRIC_NAMES[self.kind]:
                raise ValueError(
                    f"{self.type} has no metric '{metric}'.{suggestion(metric, METRIC_NAMES[self.kind])}".rstrip(".")
                )
        for split in self.unlabelled:
            if split not in self.split_names or split in (self.train, self.select):
                raise ValueError(f"unlabelled names '{split}', which is not a split that is only predicted")
        other = self.train.rpartition(":")[0]
        if ":" in self.train and other not in TASKS:
            raise ValueError(f"train names the split '{self.train}' of no task.{suggestion(other, TASKS)}".rstrip("."))
        if ":" not in self.train and self.kind != "similarity" and self.train not in self.split_names:
            raise ValueError(f"there is no split '{self.train}' to train on.{suggestion(self.train, self.split_names)}")
        return self

    @property
    def kind(self) -> TaskKind:
        """The kind of task: a pair is a classification of two texts."""
        return "classification" if self.type == "pair" else self.type

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits, in the order of the description."""
        return tuple(self.hub.splits if self.hub is not None else self.files or {})


@dataclass(frozen=True)
class OwnTask:
    """A described task.

    Attributes:
        definition: The task and its sources.
        folder: That of the YAML, which relative file names start from.
        on_hub: Whether its rows are on the Hub.
    """

    definition: TaskDefinition
    folder: Path
    on_hub: bool


def read_own_task(path: Path) -> OwnTask:
    """Read the description of a task.

    Args:
        path: The YAML file.

    Raises:
        CorpusError: if the file cannot be read.
        RecipeError: if it is not YAML, has an unknown key, or cannot be meant as written.
    """
    content = read_document(path, f"The task file '{path}'", "give a YAML file that describes a task.", CorpusError)
    if not isinstance(content, dict):
        raise RecipeError(f"The task file '{path}' must be a mapping with name, type, columns and files or hub.")
    try:
        described = OwnDescription.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"The task file '{path}': {_first_problem(error)}.") from None
    return OwnTask(_define(described), path.parent, described.hub is not None)


def _define(described: OwnDescription) -> TaskDefinition:
    given = described.columns
    if described.kind == "question_answering":
        columns = Columns(given.context, given.question, label=None, id=given.id or "id", answers=given.answers)
    else:
        columns = Columns(given.text or "", given.pair, label=given.label, id=given.id)
    names = described.split_names
    labelled = [name for name in names if name not in described.unlabelled]
    held_out = tuple(name for name in labelled if name != described.train)
    similarity = described.kind == "similarity"
    select = described.select if described.select in held_out else next(iter(held_out), None)
    task = Task(
        name=described.name,
        title=described.title or described.name,
        group="own",
        kind=described.kind,
        labels=described.labels,
        metrics=described.metric or METRIC_NAMES[described.kind],
        train=None if similarity else described.train,
        select=None if similarity else select,
        scored=tuple(labelled) if similarity else held_out,
        predicted=described.unlabelled,
        splits={name: SplitFacts(labelled=name in labelled, language=described.language) for name in names},
        answerable_only=not described.no_answers,
    )
    return TaskDefinition(task, dict(_sources(described, columns)))


def _sources(described: OwnDescription, columns: Columns) -> Mapping[str, SplitSource]:
    if described.hub is not None:
        hub = described.hub
        return {
            split: SplitSource(hub=HubSource(hub.name, on_hub, columns, hub.config, hub.revision))
            for split, on_hub in hub.splits.items()
        }
    return {split: SplitSource((FileSource(path, columns),)) for split, path in (described.files or {}).items()}


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = "is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}".removeprefix(": ").rstrip(".")
