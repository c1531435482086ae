"""Tasks as their kinds see them: classes, metrics and splits, and what is predicted of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import Field

from limbeck.core.strict import Strict
from limbeck.corpus.rows.labelled_rows import LabelledRow

AnswerRules = Literal["squad", "mlqa", "cmrc2018"]


@dataclass(frozen=True)
class SplitFacts:
    """Facts of a split before it is read.

    Attributes:
        published_rows: Rows that the source publishes; a mismatch is reported, never hidden.
        labelled: Whether its labels or answers are public.
        language: The language of its texts, or of the context of its questions.
    """

    published_rows: int | None = None
    labelled: bool = True
    language: str = "en"


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
        name: Name by which users ask for it, for example `sst2`.
        title: Name in tables, for example `SST-2`.
        group: `glue`, `qa`, `cross_lingual`, `chinese`, `similarity` or `own`.
        kind: Name of its kind, see `limbeck.kinds.KINDS`.
        labels: Class names in the order of their numbers; empty where there are no classes.
        metrics: Names of metrics of its kind, the main one first.
        positive: The class that the metric `f1` is of, one of `labels`; None where it has no such metric.
        train: The split to train on; `"mnli:train"` where it is another task's; None where nothing is trained.
        select: The split on which the best grid point is chosen.
        scored: The labelled splits that are scored.
        predicted: The unlabelled splits, for submission files only.
        splits: Facts of every split.
        answerable_only: False where a question may have no answer, so that a threshold decides.
        answer_rules: The rules that compare answers: `squad`, `mlqa` or `cmrc2018`; None decides by the language.
        submissions: The leaderboard's file per split; a split without one has the file `{task}-{split}`.
        thresholds: Where a row may have several classes, the probability from which a row is given each class; empty
            means 0.5 for all.
    """

    name: str
    title: str
    group: str
    kind: str
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
    thresholds: tuple[float, ...] = ()
    positive: str | None = None


@dataclass(frozen=True)
class TaskData:
    """The rows of a task.

    Attributes:
        task: The task.
        splits: Rows per split; the train split is under `"train"` even where it is another task's.
        notes: Row counts beside the published ones, dropped rows and the like, for the user to read.
    """

    task: Task
    splits: Mapping[str, Sequence[LabelledRow]]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class AnswerPrediction:
    """The answer to one question.

    Attributes:
        text: The best answer that is not empty.
        null_odds: Score of no answer less the score of `text`; where it is above a threshold the answer is empty.
    """

    text: str
    null_odds: float = 0.0


Predictions: TypeAlias = (
    Sequence[int]
    | Sequence[float]
    | Sequence[tuple[float, ...]]
    | Sequence[Sequence[int]]
    | Mapping[str, AnswerPrediction]
)
"""A class number or a value per row, in their order; of several classes a row, a probability for each; of words, a
class number for each; or, of questions, an answer per row id."""
