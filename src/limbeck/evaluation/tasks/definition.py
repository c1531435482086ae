"""Where the rows of a task come from: files of a folder by their usual names, or a Hub data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from limbeck.evaluation.tasks.task import Task


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
        columns: What to take of it.
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
        columns: What to take of it.
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
