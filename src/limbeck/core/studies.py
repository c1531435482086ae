"""The records of studies: evaluations on tasks, comparisons, searches and inspections; see `limbeck.core.records`."""

import statistics
from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field

from limbeck.core.intervals import Interval, of_mean
from limbeck.core.records import File, Made, Number, PlannedRun, Record, Student, Times

# Scores of tasks, in percent, over fine-tunings or runs that differ in their seed.


class Figure(Record):
    """A figure over runs: mean, sample deviation (None of one run) and the runs."""

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
        interval: Its 95 % interval over `rows`, of one run on one split.
        only_answer: The one answer that a run gives to all rows; None where all runs give several.
    """

    metrics: dict[str, Figure] = Field(default_factory=dict)
    interval: list[Number] | None = None
    rows: int | None = None
    only_answer: str | None = None

    @property
    def is_meaningless(self) -> bool:
        """Whether a run gives all rows one answer; of older records by Matthews' coefficient, which is 0 then."""
        matthews = self.metrics.get("matthews")
        return self.only_answer is not None or (matthews is not None and 0 in matthews.runs)


class Average(Figure):
    """An average over tasks, by the keys of their columns; `complete` if these are all that it is meant over."""

    of: list[str] = Field(default_factory=list)
    complete: bool = True


class Averages(Record):
    """The averages of a model, None of fewer than two tasks."""

    average: Average | None = None
    without_cola: Average | None = None

    @property
    def by_name(self) -> dict[str, Average | None]:
        """Both, by their keys."""
        return {"average": self.average, "without_cola": self.without_cola}


class Column(Record):
    """A column of a table of tasks.

    Attributes:
        key: Names it, in published tables too.
        title: Heads it.
        task: The task.
        kind: Of the task.
        splits: The scored splits whose mean it is.
        detail: Whether it is a part of another column, for the table of all scores only.
        metric: Of its figures.
    """

    key: str
    title: str
    task: str | None = None
    kind: str | None = None
    splits: list[str] = Field(default_factory=list)
    detail: bool = False
    metric: str = ""


class ChosenPoint(Record):
    """The grid point that stands for a model on a task, and its runs.

    Attributes:
        settings: Of the point.
        runs: Number of finished ones.
        wanted: Number there should be.
        points: Number of points with a finished run.
        seeds: Of the runs.
        weights: Folder of the best run's kept weights, in that of the evaluation.
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
    """A model's passes at one batch size and length; `speedup` over the first model."""

    model: str
    batch: int
    length: int
    rounds: Number | None = None
    sentences_per_second: Number | None = None
    tokens_per_second: Number | None = None
    speedup: Number | None = None


class PublishedCost(Record):
    """Costs that a paper measured of a model of a shape.

    Attributes:
        paper: One of `limbeck.evaluation.published.PAPERS`.
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

    FILE = "costs.json"

    asked: dict[str, Any] = Field(default_factory=dict)
    costs: Costs = Field(default_factory=Costs)


class Evaluation(File):
    """The tables of an evaluation; the others are compared with the first model.

    Attributes:
        average: Table of the preset's paper whose average was asked for.
        as_is: Whether the models were scored by their heads as they are.
        notes: All of them; `notes_in_short` has a line a kind.
    """

    FILE = "evaluation_table.json"

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

    FILE = "evaluation.json"

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
    seconds: Number | None = None
    training_seconds: Number | None = None
    predictions: str | None = None
    weights: str | None = None
    thresholds: list[float] | None = None
    intervals: dict[str, dict[str, list[Number]]] | None = None
    only_answer: dict[str, str] | None = None
    notes: list[str] = Field(default_factory=list)
    error: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    device: str | None = None
    created: str | None = None


# A comparison: `comparison.json`.


class Budget(Record):
    """Tokens of each run."""

    tokens: Number | None = None


class PlannedComparison(Record):
    """The plan, as the record holds it."""

    seeds: list[int] = Field(default_factory=list)
    budget: Budget = Field(default_factory=Budget)


class ComparedText(Record):
    """The corpus that all runs read."""

    rows: Number | None = None
    held_out_rows: Number | None = None
    tokens: Number | None = None


class ComparedTeacher(Record):
    """The teacher, and its own figures on held-out text."""

    name: str = ""
    title: str = ""
    shape: str = ""
    held_out: dict[str, Number | None] | None = None


class Combination(Record):
    """A student, method and mapping; with a reason, one that cannot be."""

    student: str
    method: str
    mapping: str = ""
    reason: str | None = None

    @property
    def label(self) -> str:
        """Its method, and the mapping where there is one."""
        return f"{self.method}, {self.mapping}" if self.mapping else self.method


class ComparisonCell(Combination):
    """A run of a comparison; `steps` of each stage, `scores` by task, `unavailable` the reason by measure."""

    title: str = ""
    seed: int | None = None
    id: str | None = None
    shape: str = ""
    status: str = ""
    problem: str | None = None
    folder: str = ""
    model: str = ""
    steps: list[int] = Field(default_factory=list)
    tokens: Number | None = None
    seconds: Number | None = None
    held_out: dict[str, Number | None] | None = None
    unavailable: dict[str, str] = Field(default_factory=dict)
    scores: dict[str, Number | None] = Field(default_factory=dict)
    versions: dict[str, str] | None = None
    git_commit: str | None = None
    device: str | None = None


class HeldOutMeasure(Record):
    """A measure on held-out text: how many digits it is shown with, and whether the `highest` or `lowest` is best."""

    key: str
    title: str
    digits: int = 3
    best: str = "highest"


class HeldOutFigures(File):
    """Figures of a model on held-out text, None where `unavailable` says why; equal `settings` make them comparable."""

    FILE = "held_out.json"

    figures: dict[str, Number | None] = Field(default_factory=dict)
    unavailable: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class MainFigure(Record):
    """What ranks the rows: an average, a column or a held-out measure (`kind`), by its `key` there."""

    kind: str
    key: str
    title: str
    of: list[str] | None = None
    digits: int | None = None
    best: str | None = None


class Speedup(Record):
    """Over the teacher, at a batch size and length."""

    batch: int
    length: int
    speedup: Number


class ModelCost(Record):
    """Parameters and speedups of a model."""

    parameters: Number | None = None
    speedups: list[Speedup] = Field(default_factory=list)


class ComparedScores(Scores):
    """Scores with figures on held-out text by measure; `main` ranks."""

    held_out: dict[str, Figure] = Field(default_factory=dict)
    main: Figure | None = None
    tokens: Figure | None = None
    seconds: Figure | None = None


class TeacherRow(ComparedScores):
    """The teacher in the tables of a comparison."""

    name: str = ""
    title: str = ""
    shape: str = ""
    cost: ModelCost | None = None


class ComparedRow(Combination, ComparedScores):
    """A method and mapping on a student, pooled over seeds; no row is better beyond chance than one of rank 1."""

    shape: str = ""
    seeds: list[int] = Field(default_factory=list)
    finished: int = 0
    wanted: int = 0
    rank: int | None = None
    best_mapping: bool = False

    @property
    def place(self) -> int | None:
        """Its rank; None of one seed, of which earlier versions made one too."""
        return self.rank if self.finished > 1 else None

    @property
    def over_seeds(self) -> Interval | None:
        """The interval of the main figure over seeds; None of fewer than two."""
        return of_mean(self.main.runs) if self.main is not None and self.finished > 1 else None


class StudentBlock(Record):
    """The rows of one student, beside published ones of its shape."""

    student: str
    shape: str = ""
    cost: ModelCost | None = None
    rows: list[ComparedRow] = Field(default_factory=list)
    published: list[PublishedScores] = Field(default_factory=list)


class ComparisonSummary(Record):
    """The content of a comparison's tables."""

    preset: str | None = None
    columns: list[Column] = Field(default_factory=list)
    held_out: list[HeldOutMeasure] = Field(default_factory=list)
    main: MainFigure | None = None
    teacher: TeacherRow = Field(default_factory=TeacherRow)
    blocks: list[StudentBlock] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class Comparison(Made):
    """A comparison; `fixed` holds the settings of all runs, so that they can be compared."""

    FILE = "comparison.json"

    plan: PlannedComparison = Field(default_factory=PlannedComparison)
    fixed: dict[str, Any] = Field(default_factory=dict)
    corpus: ComparedText = Field(default_factory=ComparedText)
    teacher: ComparedTeacher = Field(default_factory=ComparedTeacher)
    impossible: list[Combination] = Field(default_factory=list)
    cells: list[ComparisonCell] = Field(default_factory=list)
    summary: ComparisonSummary = Field(default_factory=ComparisonSummary)
    costs: Costs | None = None


# Searches: `search.json`. The record of one that is not finished has less in it.


class SearchTeacher(Record):
    """The teacher of a search; its milliseconds a pass, or its number of layers, where the search is about them."""

    name: str = ""
    shape: str = ""
    latency_ms: Number | None = None
    layers: int | None = None


class SearchCost(Record):
    """Trials by what became of them, and seconds of all workers."""

    evaluations: int | None = None
    trained: int | None = None
    cut: int | None = None
    refused: int | None = None
    diverged: int | None = None
    failed: int | None = None
    steps: int | None = None
    training_seconds: Number | None = None
    scoring_seconds: Number | None = None
    seconds: Number | None = None

    @property
    def all_seconds(self) -> float:
        """Seconds that workers spent."""
        return sum(filter(None, (self.training_seconds, self.scoring_seconds, self.seconds)))


class Search(Made):
    """The base of the three kinds of search.

    Attributes:
        kind: `mapping`, `architecture` or `teacher-layer`.
        identity: Settings for which the study's values are comparable.
        share: Of the text, that candidates are trained on.
        recipe: Of the searched run, with the result; None without one.
    """

    FILE = "search.json"
    KIND = "kind"

    kind: str | None = None
    storage: str | None = None
    identity: dict[str, Any] = Field(default_factory=dict)
    teacher: SearchTeacher = Field(default_factory=SearchTeacher)
    student: Student = Field(default_factory=Student)
    methods: list[str] = Field(default_factory=list)
    share: Number | None = None
    recipe: PlannedRun | None = None
    cost: SearchCost = Field(default_factory=SearchCost)


class Candidate(Record):
    """A layer mapping that has a fitness."""

    mapping: list[int]
    gene: str
    fitness: Number
    scores: dict[str, Number] = Field(default_factory=dict)
    generation: int | None = None
    trial: int | None = None
    training_seconds: Number | None = None
    scoring_seconds: Number | None = None


class Generation(Record):
    """A generation: the fitness of its members, the best of them, and how they were bred."""

    number: int
    maximum: Number
    minimum: Number
    mean: Number
    deviation: Number
    best: list[int]
    best_gene: str = ""
    size: int
    evaluated: int
    members: list[str] = Field(default_factory=list)
    breeding: dict[str, int] | None = None


class GivenUp(Record):
    """A mapping that came to no fitness, and why."""

    mapping: list[int]
    gene: str = ""
    problem: str = ""


class MappingSpaceSize(Record):
    """The mappings that can be chosen: by position, and how many in all."""

    size: int | None = None
    student_layers: int | None = Field(default=None, alias="student layers")
    teacher_layers: int | None = Field(default=None, alias="teacher layers")
    choices: list[list[int]] = Field(default_factory=list)


class MappingSearch(Search):
    """A search of layer mappings; `candidates` and `scores` are best first and by name."""

    space: MappingSpaceSize = Field(default_factory=MappingSpaceSize)
    scores: list[str] = Field(default_factory=list)
    generations: list[Generation] = Field(default_factory=list)
    candidates: list[Candidate] = Field(default_factory=list)
    best: Candidate | None = None
    given_up: list[GivenUp] = Field(default_factory=list)


class SearchedShape(Record):
    """A shape and what became of it (`state`): trained, cut, refused, diverged or failed, for a `reason`."""

    trial: int
    layers: int
    hidden: int
    heads: int
    ffn: int
    parameters: Number | None = None
    latency_share: Number | None = None
    latency_ms: Number | None = None
    teacher_ms: Number | None = None
    threads: int | None = None
    note: str | None = None
    loss: Number | None = None
    reward: Number | None = None
    steps: int | None = None
    rewards_on_the_way: dict[str, Number | None] = Field(default_factory=dict)
    state: str
    reason: str | None = None
    training_seconds: Number | None = None


class ShapeSpaceSize(Record):
    """The sizes that can be chosen, `ffn` in multiples of `hidden`, and how many shapes they make."""

    layers: list[int] = Field(default_factory=list)
    hidden: list[int] = Field(default_factory=list)
    heads: list[int] = Field(default_factory=list)
    ffn: list[Number] = Field(default_factory=list)
    shapes: int | None = None


class ShapeLimits(Record):
    """The most parameters, and the largest share of the teacher's latency."""

    parameters: Number | None = None
    latency_share: Number | None = None


class TimedWith(Record):
    """What latency is measured on."""

    device: str | None = None
    dtype: str | None = None
    batch: int | None = None
    length: int | None = None
    of: str | None = None
    seconds: Number | None = None


class SearchLoss(Record):
    """The loss by which shapes are judged, and that of an untrained student: its unit but for `hidden_states`."""

    kind: str | None = None
    untrained: Number | None = None


class ArchitectureSearch(Search):
    """A search of shapes; `front` holds the trials that no other beats in both loss and latency."""

    space: ShapeSpaceSize = Field(default_factory=ShapeSpaceSize)
    limits: ShapeLimits = Field(default_factory=ShapeLimits)
    latency: TimedWith = Field(default_factory=TimedWith)
    loss: SearchLoss = Field(default_factory=SearchLoss)
    sampler: str | None = None
    episode: int | None = None
    cuts: list[int] = Field(default_factory=list)
    shapes: list[SearchedShape] = Field(default_factory=list)
    best: SearchedShape | None = None
    front: list[int] = Field(default_factory=list)


class LayerScore(Record):
    """A candidate's score after a step, and its parts."""

    step: int
    score: Number | None = None
    agreement: Number | None = None
    explained: Number | None = None


class SearchedLayer(Record):
    """A layer of the teacher, by the student that learns from it; `state` is trained, cut or diverged."""

    rank: int | None = None
    layer: int
    scores: list[LayerScore] = Field(default_factory=list)
    steps: int | None = None
    state: str = ""
    own_loss: Number | None = None


class Rung(Record):
    """How many candidates train up to which step."""

    candidates: int
    end: int


class TeacherLayerSearch(Search):
    """A search of the teacher's layers, best first."""

    scores: list[str] = Field(default_factory=list)
    halving: int | None = None
    rungs: list[Rung] = Field(default_factory=list)
    layers: list[SearchedLayer] = Field(default_factory=list)
    best: SearchedLayer | None = None


Search.KINDS = {"mapping": MappingSearch, "architecture": ArchitectureSearch, "teacher-layer": TeacherLayerSearch}


# Inspections: a file each, named after the inspection.


MEAN_HEAD = 0
"""Stands for the mean over all heads where a head is asked for."""


class Inspection(File):
    """A file of `limbeck inspect`; `result` is read by `limbeck.inspection`, whose types write it."""

    FILE = "inspection.json"

    inspection: str = ""
    result: Any = None
