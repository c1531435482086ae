"""The nouns of a task: its rows, its splits, what it is scored by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

TaskKind = Literal["classification", "regression", "question_answering", "similarity"]
"""`similarity` is scored by the cosine of sentence vectors, without fine-tuning."""

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
    """What is known of a split before it is read.

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


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: what kind it is, what its splits are for, what it is scored by.

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
        splits: What is known of every split.
        answerable_only: False where a question may have no answer, so that a threshold decides.
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


# Where the rows of a task come from: files of a folder by their usual names, or a Hub data set.


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
