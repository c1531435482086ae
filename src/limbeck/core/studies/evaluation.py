"""The records of evaluations on tasks.

A *cell* is one model on one task with one seed at one grid point: fine-tuned, or scored as it is. A *figure* pools
cells that differ only in their seed, in percent.
"""

import statistics
from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field

from limbeck.core.paths import EVALUATION_COSTS, EVALUATION_REQUEST, EVALUATION_TABLE
from limbeck.core.records import File, Number, Record, Times


class Figure(Record):
    """A figure over runs: their mean, their sample deviation (None for a single run), and the value of each."""

    mean: Number
    deviation: Number | None = None
    runs: list[Number] = Field(default_factory=list)

    @classmethod
    def of_runs(cls, values: Iterable[Number], **more: Any) -> Self:
        """Make the figure of runs, at least one; `more` are fields of the class."""
        runs = list(values)
        deviation = statistics.stdev(runs) if len(runs) > 1 else None
        return cls(mean=statistics.fmean(runs), deviation=deviation, runs=runs, **more)


class ColumnFigure(Figure):
    """A task's figure by its main metric, and by all metrics.

    Attributes:
        interval: Its 95 % interval over `rows`, for a single run on one split.
        only_answer: The one answer that a run gives to all rows; None where all runs give several.
        one_answer_runs: The number of runs that give one answer to all rows, then the number of all runs. A comparison
            counts all fine-tunings of its students. None where all runs give several, and in older records.
        chance: The score of a model that does not read the rows; None where it is 0, and in older records.
    """

    metrics: dict[str, Figure] = Field(default_factory=dict)
    interval: list[Number] | None = None
    rows: int | None = None
    only_answer: str | None = None
    one_answer_runs: list[int] | None = None
    chance: Number | None = None

    @property
    def is_meaningless(self) -> bool:
        """Whether a run gives the same answer to all rows."""
        # Older records do not say so, but Matthews' correlation is 0 then.
        matthews = self.metrics.get("matthews")
        return self.only_answer is not None or (matthews is not None and 0 in matthews.runs)

    @property
    def meaningless_runs(self) -> tuple[int | None, int]:
        """The number of runs that give the same answer to all rows, None where it is unknown, and that of all runs."""
        if self.one_answer_runs is not None:
            count, all_runs = self.one_answer_runs
            return count, all_runs
        all_runs = len(self.runs)
        if not self.is_meaningless:
            return 0, all_runs
        if all_runs <= 1:
            return all_runs, all_runs
        # Older records do not have the number, but Matthews' correlation tells it.
        matthews = self.metrics.get("matthews")
        if matthews is not None and 0 in matthews.runs:
            return matthews.runs.count(0), all_runs
        return None, all_runs


class Average(Figure):
    """An average over tasks.

    Attributes:
        of: The keys of the averaged columns.
        complete: Whether no column is missing that the average is defined over.
    """

    of: list[str] = Field(default_factory=list)
    complete: bool = True


class Averages(Record):
    """The averages of a model; None for fewer than two tasks."""

    average: Average | None = None
    without_cola: Average | None = None

    @property
    def by_name(self) -> dict[str, Average | None]:
        """Both, by their keys."""
        return {"average": self.average, "without_cola": self.without_cola}


class Column(Record):
    """A column of a table of tasks.

    Attributes:
        key: The name of the column, also in published tables.
        title: The heading.
        task: The task.
        kind: The kind of the task.
        splits: The scored splits, over which the column is the mean.
        detail: Whether it is a part of another column, which only the table of all scores shows.
        metric: The metric of its figures.
        positive: The class that the metric `f1` is of. Older records lack it: theirs is of the second of two classes,
            and else the mean over classes that occur.
    """

    key: str
    title: str
    task: str | None = None
    kind: str | None = None
    splits: list[str] = Field(default_factory=list)
    detail: bool = False
    metric: str = ""
    positive: str | None = None


class ChosenPoint(Record):
    """The grid point that stands for a model on a task, and its runs.

    Attributes:
        settings: The settings of the point.
        runs: Number of finished runs.
        wanted: Number of runs that were asked for.
        points: Number of grid points with a finished run.
        seeds: The seeds of the runs.
        weights: Folder of the best run's kept weights, within the folder of the evaluation.
    """

    settings: dict[str, Any] = Field(default_factory=dict)
    runs: int
    wanted: int
    points: int
    seeds: list[int] = Field(default_factory=list)
    weights: str | None = None


class Scores(Record):
    """The scores of a model: columns by key, averages, and the share kept of the first model's, in percent."""

    columns: dict[str, ColumnFigure] = Field(default_factory=dict)
    averages: Averages = Field(default_factory=Averages)
    retention: dict[str, Number] = Field(default_factory=dict)

    @property
    def figures(self) -> dict[str, Figure | None]:
        """Columns and averages by their keys."""
        return {**self.columns, **self.averages.by_name}

    def column_figures(self, key: str) -> list[ColumnFigure]:
        """Return the figures that a score is made of: the averaged ones of an average, or the one of a column.

        Args:
            key: The key of a column or of an average.
        """
        average = self.averages.by_name.get(key)
        column_keys = [key] if average is None else average.of
        return [self.columns[column_key] for column_key in column_keys if column_key in self.columns]

    def is_meaningless(self, key: str) -> bool:
        """Return whether a score is meaningless, since the model gives all rows of a task the same answer in some run.

        Args:
            key: The key of a column or of an average. An average is meaningless if one of its scores is.
        """
        return any(figure.is_meaningless for figure in self.column_figures(key))


class EvaluatedModel(Scores):
    """A model of an evaluation; `title` is what tables call it."""

    name: str
    title: str = ""
    shape: str = ""
    chosen: dict[str, ChosenPoint] = Field(default_factory=dict)


class PublishedScores(Record):
    """A row that a paper published; averages named in `computed` are computed from it, the others are printed.

    Attributes:
        distilled: `"task"` of a student that was distilled on each task.
    """

    paper: str
    table: str
    model: str
    teacher: str | None = None
    distilled: str | None = None
    shape: str = ""
    split: str = ""
    columns: dict[str, Number] = Field(default_factory=dict)
    average: Number | None = None
    without_cola: Number | None = None
    computed: list[str] = Field(default_factory=list)


def size_of_shape(shape: str) -> str:
    """Return layers and width of a recorded shape: `6x384` for `bert 6x384, 12 heads, FFN 1536`.

    Records have shapes as text only, in the form that `limbeck.models.families.Shape` writes.
    """
    family_and_size, _, _ = shape.partition(",")
    _, _, size = family_and_size.rpartition(" ")
    return size


class ModelSize(Record):
    """Parameters, weights and operations of a model; the last in megaflops a token, by length.

    `title` is what tables call the model.
    """

    model: str
    title: str = ""
    shape: str = ""
    heads: Number | None = None
    embedding_parameters: Number | None = None
    transformer_parameters: Number | None = None
    parameters: Number | None = None
    megabytes: Number | None = None
    megabytes_of: str | None = None
    megaflops_per_token: dict[str, Number] = Field(default_factory=dict)


class Timing(Times):
    """A model's passes at one batch size and length, and their `speedup` over the first model.

    A `note` says that the machine was busy, and if there is no speedup for that reason.
    """

    model: str
    batch: int
    length: int
    rounds: Number | None = None
    sentences_per_second: Number | None = None
    tokens_per_second: Number | None = None
    speedup: Number | None = None
    note: str | None = None


class PublishedCost(Record):
    """Costs that a paper measured of a model of a shape.

    Attributes:
        paper: One of `limbeck.evaluation.protocols.published.PAPERS`.
        table: Its number there.
        shape: Layers x hidden width.
        multilingual: Whether its vocabulary is.
        device: Where it was measured, as far as the paper says.
        task: On whose texts; None where the paper does not say.
        values: Figure -> value, the unit in the figure's name.
    """

    paper: str
    table: str
    shape: str
    multilingual: bool = False
    device: str = ""
    task: str | None = None
    values: dict[str, Number] = Field(default_factory=dict)


class Costs(Record):
    """Sizes and speed of models on one machine, beside what papers published."""

    models: list[ModelSize] = Field(default_factory=list)
    timings: list[Timing] = Field(default_factory=list)
    published: list[PublishedCost] = Field(default_factory=list)
    machine: dict[str, Any] = Field(default_factory=dict)

    def latency(self, model: str) -> float | None:
        """Return the median milliseconds of a model at the first batch size and length."""
        return next((row.median_ms for row in self.timings if row.model == model), None)


class MeasuredCosts(File):
    """Costs that were measured once, and the request of then."""

    FILE = EVALUATION_COSTS

    asked: dict[str, Any] = Field(default_factory=dict)
    costs: Costs = Field(default_factory=Costs)


class Evaluation(File):
    """The tables of an evaluation; the others are compared with the first model.

    Attributes:
        average: Table of the preset's paper whose average was asked for.
        as_is: Whether the models were scored by their heads as they are.
        notes: All of them; `notes_in_short` has a line a kind.
    """

    FILE = EVALUATION_TABLE

    preset: str | None = None
    average: str | None = None
    columns: list[Column] = Field(default_factory=list)
    models: list[EvaluatedModel] = Field(default_factory=list)
    published: list[PublishedScores] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    notes_in_short: list[str] = Field(default_factory=list)
    costs: Costs | None = None
    as_is: bool = False


class EvaluationRequest(File):
    """The request that an evaluation's folder was made for; `set` is aliased, as Python has the word.

    Attributes:
        as_is: Whether models are scored by their heads as they are; else they are fine-tuned.
    """

    FILE = EVALUATION_REQUEST

    preset: str | None = None
    overrides: list[str] = Field(default_factory=list, alias="set")
    as_is: bool = False


FINISHED, FAILED = "finished", "failed"
"""Statuses of a cell."""


class EvaluationCell(Record):
    """A row of `results.jsonl`: a model, as it is or fine-tuned on a task with one seed at one grid point.

    Attributes:
        error: Why it failed; None if it did not.
        training_arguments: The settings by the names of `transformers.TrainingArguments`, without its defaults; None
            where nothing was trained.
        weights: Hash of its weights, configuration and tokenizer as they were kept.
        thresholds: Of the classes, chosen on the select split for all others.
        intervals: 95 % intervals of scores over the rows of their split, by split and metric.
        only_answer: By split, the one answer that all rows are given.
        chance: Scores of a model that does not read the rows, by split and metric, where they are above 0.
        positive: The class that the metric `f1` is of, see `Column`.
        queries: By split, how many queries the rows are of, in a ranking; None for other kinds, and in older records.
    """

    id: str = ""
    training: str | None = None
    status: str = ""
    model: str = ""
    model_fingerprint: str | None = None
    task: str = ""
    data_fingerprint: str | None = None
    preset: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    training_arguments: dict[str, Any] | None = None
    seed: int = 0
    select: str | None = None
    scores: dict[str, dict[str, Number | None]] = Field(default_factory=dict)
    epoch: Number | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    queries: dict[str, int] | None = None
    seconds: Number | None = None
    training_seconds: Number | None = None
    predictions: str | None = None
    weights: str | None = None
    thresholds: list[float] | None = None
    intervals: dict[str, dict[str, list[Number]]] | None = None
    only_answer: dict[str, str] | None = None
    chance: dict[str, dict[str, Number]] | None = None
    positive: str | None = None
    notes: list[str] = Field(default_factory=list)
    error: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    device: str | None = None
    created: str | None = None
