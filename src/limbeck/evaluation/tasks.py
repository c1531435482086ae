"""Tasks: their rows and splits, their description in YAML, and the built-in ones in `data/tasks`.

A built-in task is one more file of the dialect in which users describe their tasks (docs/evaluation_tasks.md).
The files are read when a task is first asked for.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from limbeck.core.registry import Registry
from limbeck.core.yaml import Strict, read_document
from limbeck.errors import CorpusError, RecipeError, suggestion

TaskKind = Literal["classification", "regression", "question_answering", "similarity"]
"""`similarity` is scored by the cosine of sentence vectors, without fine-tuning."""

AnswerRules = Literal["squad", "mlqa", "cmrc2018"]

METRIC_NAMES: Mapping[TaskKind, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "matthews"),
    "regression": ("pearson", "spearman"),
    "question_answering": ("exact_match", "f1_answer"),
    "similarity": ("spearman", "pearson"),
}
"""Kind of task to the metrics that can score it, its default first."""


@dataclass(frozen=True)
class TaskRow:
    """One row of a split.

    Attributes:
        id: As the source has it, else the row number from 0.
        text: The first text, or the context of a question.
        pair: The second text, or the question.
        label: Number of the class, or the value; None where unlabelled, and for question answering.
        answers: Every gold answer; empty where there is none.
        answer_starts: Where in `text` each answer begins, in characters.
        language: Of the text, as an ISO 639-1 code.
    """

    id: str
    text: str
    pair: str | None = None
    label: int | float | None = None
    answers: tuple[str, ...] = ()
    answer_starts: tuple[int, ...] = ()
    language: str = "en"


@dataclass(frozen=True)
class SplitFacts:
    """Facts of a split before it is read.

    Attributes:
        published_rows: Rows that the source publishes; a mismatch is reported, never hidden.
        labelled: Whether its labels or answers are public.
        language: Of its texts, or of the context of its questions.
        metrics: Names in `METRICS`; empty for the task's own.
    """

    published_rows: int | None = None
    labelled: bool = True
    language: str = "en"
    metrics: tuple[str, ...] = ()


class Submission(Strict):
    """The file of predictions that a leaderboard takes for a split.

    Attributes:
        file: Its name; `.tsv` is a table, `.json` one object of answers, or an object a line of classes.
        classes: Whether a class is written by its name or by its number.
        range: Least and greatest value that the leaderboard takes; None for no bounds.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.(tsv|json)$")
    classes: Literal["names", "numbers"] = "names"
    range: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: its kind, the roles of its splits, its metrics.

    Attributes:
        name: As it is asked for, for example `sst2`.
        title: As tables print it, for example `SST-2`.
        group: `glue`, `qa`, `cross_lingual`, `chinese`, `similarity` or `own`.
        kind: Decides head, loss and decoding.
        labels: Class names in the order of their numbers; empty where there are no classes.
        metrics: Names in `METRICS`, the main one first.
        train: The split to train on; `"mnli:train"` where it is another task's; None where nothing is trained.
        select: The split on which the best grid point is chosen.
        scored: The labelled splits that are scored.
        predicted: The unlabelled splits, for submission files only.
        splits: Facts of every split.
        answerable_only: False where a question may have no answer, so that a threshold decides.
        answer_rules: Whose rules compare answers: `squad`, `mlqa` or `cmrc2018`; None decides by the language.
        submissions: The leaderboard's file per split; a split without one has the file `{task}-{split}`.
    """

    name: str
    title: str
    group: str
    kind: TaskKind
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...]
    train: str | None
    select: str | None
    scored: tuple[str, ...]
    predicted: tuple[str, ...] = ()
    splits: Mapping[str, SplitFacts]
    answerable_only: bool = True
    answer_rules: AnswerRules | None = None
    submissions: Mapping[str, Submission] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskData:
    """The rows of a task.

    Attributes:
        task: Whose rows they are.
        splits: Rows per split; the train split is under `"train"` even where it is another task's.
        notes: Row counts beside the published ones, dropped rows and the like, for the user to read.
    """

    task: Task
    splits: Mapping[str, Sequence[TaskRow]]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Columns:
    """The columns that a row is made of.

    Attributes:
        text: The text, or the context; of a list of texts the parts are joined by spaces.
        pair: The second text, or the question.
        label: The class or the value; None for question answering, and where there is none.
        id: Of the row; where a table has no such column, rows are numbered from 0.
        answers: As SQuAD has them.
    """

    text: str
    pair: str | None = None
    label: str | None = "label"
    id: str | None = None
    answers: str = "answers"


@dataclass(frozen=True)
class FileSource:
    """One name that the file of a split may have.

    Attributes:
        path: Below the data folder, or below one of its subfolders.
        columns: Those that a row is made of.
        header: Names of the fields of a table without a header; further fields are passed over.
        only: Fields and the values that a row must have in them to belong to the split.
    """

    path: str
    columns: Columns
    header: tuple[str, ...] = ()
    only: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HubSource:
    """A split of a Hub data set.

    Attributes:
        name: `owner/name`.
        split: As the data set calls it.
        columns: Those that a row is made of.
        config: Of the data set.
        revision: Of the data set; None is the newest.
        published_rows: Where the Hub's copy has another number of rows than the source publishes.
    """

    name: str
    split: str
    columns: Columns
    config: str | None = None
    revision: str | None = None
    published_rows: int | None = None


@dataclass(frozen=True)
class SplitSource:
    """Everything a split can be read from.

    Attributes:
        files: Tried in this order; the first that is there is read.
        hub: Read where no folder is given.
        parts: Splits of the task whose rows, one after another, are this split; then there is nothing else.
    """

    files: tuple[FileSource, ...] = ()
    hub: HubSource | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskDefinition:
    """A task and where its rows come from.

    Attributes:
        task: The task.
        sources: A source per split of the task.
        second_choice: Splits that are scored where none of `task.scored` is there.
    """

    task: Task
    sources: Mapping[str, SplitSource]
    second_choice: tuple[str, ...] = ()


_LONGEST_TITLE = 200
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MOST_WRITTEN_OUT = 5_000_000
"""Characters of a description once what stands for several splits is written out."""

TaskType = Literal["classification", "regression", "pair", "question_answering", "similarity"]


Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""Several names, or one alone."""


class ColumnNames(Strict):
    """Names of the columns; those of question answering are SQuAD's unless said otherwise."""

    text: str | None = None
    pair: str | None = None
    label: str = "label"
    id: str | None = None
    context: str = "context"
    question: str = "question"
    answers: str = "answers"


class FileNames(Strict):
    """The names that the file of a split may have, and its layout where that is not the task's."""

    path: Names = Field(min_length=1)
    columns: ColumnNames | None = None
    header: tuple[str, ...] = ()
    only: dict[str, str] = Field({})


class HubSplit(Strict):
    """A split of a Hub data set."""

    split: str
    config: str | None = None


def _split_of_a_name(value: Any) -> Any:
    return {"split": value} if isinstance(value, str) else value


class HubData(Strict):
    """A Hub data set, and which of its splits are which of the task's; by default those of the same names."""

    name: str = Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)?$")
    config: str | None = None
    revision: str | None = None
    columns: ColumnNames | None = None
    splits: dict[str, Annotated[HubSplit, BeforeValidator(_split_of_a_name)]] = Field({})
    rows: dict[str, int] = Field({})


def _files_of_names(value: Any) -> Any:
    """Return the descriptions of a split's files: one, several, or the names alone."""
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        return [{"path": value}]
    return [value] if isinstance(value, dict) else value


Files = Annotated[
    dict[str, Annotated[tuple[FileNames, ...], BeforeValidator(_files_of_names)]],
    BeforeValidator(lambda value: {} if value is None else value),
]


class TaskDescription(Strict):
    """A task as its author describes it; docs/evaluation_tasks.md explains every key."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)
    type: TaskType
    title: str | None = None
    group: str = Field(default="own", pattern=r"^\w{1,100}$")
    columns: ColumnNames = ColumnNames()
    labels: tuple[str, ...] = ()
    metric: Names = ()
    each: dict[str, tuple[str, ...]] = Field({})
    folders: tuple[str, ...] = ("",)
    files: Files = Field({})
    hub: HubData | None = None
    parts: dict[str, tuple[str, ...]] = Field({})
    rows: dict[str, int] = Field({})
    language: str | dict[str, str] = "en"
    train: str = "train"
    select: str = "validation"
    scored: tuple[str, ...] | None = None
    second_choice: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    no_answers: bool = False
    answer_rules: AnswerRules | None = None
    submissions: dict[str, Submission] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, data: Any) -> Any:
        each = data.get("each") if isinstance(data, dict) else None
        if not isinstance(each, dict) or not all(isinstance(values, list) for values in each.values()):
            return data
        if len(repr(data)) * math.prod(map(len, each.values())) > _MOST_WRITTEN_OUT:
            raise ValueError("each stands for too many splits: give fewer values")
        return {key: value if key == "each" else _written_out(value, each) for key, value in data.items()}

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        # YAML reads 0 and no as a number and a truth value.
        if isinstance(value, list):
            if wrong := [label for label in value if not isinstance(label, str | int) or isinstance(label, bool)]:
                raise ValueError(f"the label {wrong[0]!r} is not text: put it in quotation marks")
            return tuple(map(str, value))
        return value

    @field_validator("title", "language")
    @classmethod
    def _is_one_line(cls, value: Any) -> Any:
        texts = value.values() if isinstance(value, dict) else () if value is None else (value,)
        for text in texts:
            if not (text.isprintable() and 0 < len(text.strip()) <= _LONGEST_TITLE):
                raise ValueError(f"{text[:40]!r} is no line of 1 to {_LONGEST_TITLE} printable characters")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> TaskDescription:
        if not self.files and self.hub is None:
            raise ValueError("give files, hub or both")
        if not self.split_names:
            raise ValueError("hub names no split: give at least one, such as validation")
        for split in self.split_names:  # Files of predictions are named after them.
            if not _SPLIT.fullmatch(split):
                raise ValueError(f"the split {split[:40]!r} has to be named by letters, digits, '.', '-' and '_'")
        # A description may come from anywhere, and reads nothing but what lies beside it or in the data folder.
        for split, files in self.files.items():
            for name in (name for file in files for name in self.paths(file)):
                parts = Path(name).parts
                if not parts or Path(name).is_absolute() or ".." in parts or not name.isprintable():
                    raise ValueError(
                        f"the file '{name[:80]}' of {split} has to lie beside the description or in --data"
                    )
        self._check_columns_and_labels()
        self._check_splits()
        return self

    def _check_columns_and_labels(self) -> None:
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
                hint = suggestion(metric, METRIC_NAMES[self.kind]).rstrip(".")
                raise ValueError(f"{self.type} has no metric '{metric}'.{hint}")

    def _check_splits(self) -> None:
        for split in self.unlabelled:
            if split not in self.split_names or split in (self.train, self.select):
                raise ValueError(f"unlabelled names '{split}', which is not a split that is only predicted")
        named = {
            "parts": [part for parts in self.parts.values() for part in parts],
            "rows": [*self.rows, *(self.hub.rows if self.hub is not None else ())],
            "language": self.language if isinstance(self.language, dict) else (),
            "scored": self.scored or (),
            "second_choice": self.second_choice,
            "submissions": self.submissions,
        }
        for key, splits in named.items():
            for split in splits:
                if split not in self.split_names or (key in ("scored", "second_choice") and split in self.unlabelled):
                    raise ValueError(f"{key} names '{split}'.{suggestion(split, self.split_names)}".rstrip("."))
        if ":" not in self.train and self.kind != "similarity" and self.train not in self.split_names:
            raise ValueError(f"there is no split '{self.train}' to train on.{suggestion(self.train, self.split_names)}")

    @property
    def kind(self) -> TaskKind:
        """The kind of task: a pair is a classification of two texts."""
        return "classification" if self.type == "pair" else self.type

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits, in the order of the description."""
        return tuple(dict.fromkeys((*self.parts, *self.files, *(self.hub.splits if self.hub is not None else ()))))

    def paths(self, file: FileNames) -> list[str]:
        """Return every name that a file may have, those of the first folder first."""
        return [f"{folder}/{name}" if folder else name for folder in self.folders for name in file.path]


def _written_out(value: Any, each: Mapping[str, Sequence[str]]) -> Any:
    """Return plain values with every key and listed text that has a `{name}` once for each value of that name."""
    if isinstance(value, dict):
        return {
            text: _written_out(_put_in(item, chosen), each)
            for key, item in value.items()
            for text, chosen in _choices(key, each)
        }
    if isinstance(value, list):
        return [_written_out(text, each) for item in value for text, _ in _choices(item, each)]
    return value


def _choices(text: Any, each: Mapping[str, Sequence[str]]) -> Iterator[tuple[Any, dict[str, str]]]:
    names = [name for name in each if isinstance(text, str) and f"{{{name}}}" in text]
    for values in itertools.product(*(map(str, each[name]) for name in names)):
        chosen = dict(zip(names, values, strict=True))
        yield _put_in(text, chosen), chosen


def _put_in(value: Any, chosen: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {_put_in(key, chosen): _put_in(item, chosen) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_in(item, chosen) for item in value]
    for name, text in chosen.items() if isinstance(value, str) else ():
        value = value.replace(f"{{{name}}}", text)
    return value


def define(described: TaskDescription) -> TaskDefinition:
    """Make a task and the sources of its splits from their description."""
    names = [name for name in described.split_names if name not in described.unlabelled]
    held_out = [name for name in names if name != described.train and name not in described.parts]
    similarity = described.kind == "similarity"
    select: str | None = described.select
    if ":" not in described.select and described.select not in names:
        select = next(iter(held_out), None)
    language = described.language
    task = Task(
        name=described.name,
        title=described.title or described.name,
        group=described.group,
        kind=described.kind,
        labels=described.labels,
        metrics=described.metric or METRIC_NAMES[described.kind],
        train=None if similarity else described.train,
        select=None if similarity else select,
        scored=tuple(names if similarity else held_out) if described.scored is None else described.scored,
        predicted=described.unlabelled,
        splits={
            name: SplitFacts(
                described.rows.get(name),
                labelled=name in names,
                language=language if isinstance(language, str) else language.get(name, "en"),
            )
            for name in described.split_names
        },
        answerable_only=not described.no_answers,
        answer_rules=described.answer_rules,
        submissions=described.submissions,
    )
    sources = {split: _source(described, split) for split in described.split_names}
    return TaskDefinition(task, sources, described.second_choice)


def _source(described: TaskDescription, split: str) -> SplitSource:
    if split in described.parts:
        return SplitSource(parts=described.parts[split])
    files = tuple(
        FileSource(path, _columns(described, file.columns), file.header, file.only)
        for file in described.files.get(split, ())
        for path in described.paths(file)
    )
    hub = described.hub
    if hub is None or (hub.splits and split not in hub.splits):
        return SplitSource(files)
    found = hub.splits.get(split) or HubSplit(split=split)
    columns, config = _columns(described, hub.columns), found.config or hub.config
    return SplitSource(files, HubSource(hub.name, found.split, columns, config, hub.revision, hub.rows.get(split)))


def _columns(described: TaskDescription, own: ColumnNames | None) -> Columns:
    given = own or described.columns
    if described.kind == "question_answering":
        return Columns(given.context, given.question, label=None, id=given.id or "id", answers=given.answers)
    return Columns(given.text or "", given.pair, label=given.label, id=given.id)


class _BuiltInTask(TaskDescription):
    """A task of the package: the groups that `--tasks` knows it by, and its place among the others."""

    listed_in: tuple[str, ...] = ()
    order: int


def read_own_task(path: Path) -> TaskDefinition:
    """Read a user's description of a task.

    Args:
        path: The YAML file.

    Raises:
        CorpusError: if the file cannot be read.
        RecipeError: if it is not YAML, has an unknown key, contradicts itself, or has the name of a built-in task.
    """
    described = _read(path, TaskDescription)
    problem = ""
    if described.name in TASKS:  # Tables and published rows know a task by its name.
        problem = f"name: '{described.name}' is a task of limbeck; give the task another name"
    for key, split in (("train", described.train), ("select", described.select)):
        other = split.rpartition(":")[0]
        if ":" in split and other not in TASKS:
            problem = f"{key} names the split '{split}' of no task.{suggestion(other, TASKS)}".rstrip(".")
    if problem:
        raise RecipeError(f"The task file '{path}': {problem}.")
    return define(described)


D = TypeVar("D", bound=TaskDescription)


def _read(path: Path, kind: type[D]) -> D:
    content = read_document(path, f"The task file '{path}'", "give a YAML file that describes a task.", CorpusError)
    if not isinstance(content, dict):
        raise RecipeError(f"The task file '{path}' must be a mapping with name, type, columns and files or hub.")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"The task file '{path}': {first_problem(error)}.") from None


def first_problem(error: ValidationError) -> str:
    """Return the first thing that is wrong, and where, without a full stop."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = "is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}".removeprefix(": ").rstrip(".")


@cache
def _built_in() -> list[_BuiltInTask]:
    found = (_read(path, _BuiltInTask) for path in (DATA / "tasks").glob("*.yaml"))
    return sorted(found, key=lambda described: described.order)


def _groups() -> Iterator[tuple[str, tuple[str, ...]]]:
    for group in dict.fromkeys(group for described in _built_in() for group in described.listed_in):
        yield group, tuple(described.name for described in _built_in() if group in described.listed_in)


DATA = Path(__file__).parent / "data"
"""The package's tasks, protocols and published figures."""

DEFINITIONS: Registry[TaskDefinition] = Registry(
    "task", source=lambda: ((described.name, define(described)) for described in _built_in())
)
"""Name to task and sources."""

TASKS: Registry[Task] = Registry(
    "task", source=lambda: ((name, definition.task) for name, definition in DEFINITIONS.items())
)
"""Name to task."""

TASK_GROUPS: Registry[tuple[str, ...]] = Registry("group of tasks", source=_groups)
"""Name of a group to its tasks; `chinese` has those of ELM's table 7."""


def is_own_task(name: str) -> bool:
    """Whether a name is the path of a YAML file that describes a task."""
    return Path(name).suffix.lower() in (".yaml", ".yml")


def find_task(name: str) -> TaskDefinition:
    """Return a task and its sources.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes a task.

    Raises:
        RecipeError: for an unknown task, or a description that is wrong.
        CorpusError: for a file that cannot be read.
    """
    return read_own_task(Path(name).expanduser()) if is_own_task(name) else DEFINITIONS[name]


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
    groups = dict(TASK_GROUPS.items())
    for name in filter(None, (part.strip() for part in text.split(","))):
        if is_own_task(name):
            if not _is_file(name):
                raise CorpusError(f"The task file '{name}' does not exist.")
            found[name] = None
        elif name in groups or name in TASKS:
            found |= dict.fromkeys(groups.get(name, (name,)))
        else:
            raise RecipeError(f"Unknown task '{name}'.{suggestion(name, [*groups, *TASKS])}")
    if not found:
        raise RecipeError(f"'{text}' names no task.{suggestion(text, [*groups, *TASKS])}")
    return list(found)
