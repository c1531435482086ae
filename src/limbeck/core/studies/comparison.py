"""The record of a comparison: students of several methods, distilled from one teacher under one budget.

A *variant* is a student's shape, a method and a layer mapping. A *cell* is one run: a variant with one seed. A *row* of
the tables pools the cells of a variant over their seeds; a *block* has the rows of one student's shape.
"""

from typing import Any

from pydantic import Field

from limbeck.core.intervals import Interval, of_mean
from limbeck.core.paths import COMPARISON_RECORD, HELD_OUT_RECORD
from limbeck.core.records import EarlyEnd, File, Made, Number, Record
from limbeck.core.studies.evaluation import Column, Costs, Figure, PublishedScores, Scores


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


class ComparedVariant(Record):
    """A student, a method and a mapping; `reason` says why they do not go together, where they do not."""

    student: str
    method: str
    mapping: str = ""
    reason: str | None = None

    @property
    def label(self) -> str:
        """Its method, and the mapping where there is one."""
        return f"{self.method}, {self.mapping}" if self.mapping else self.method


class ComparisonCell(ComparedVariant):
    """A run of a comparison: a variant with one seed.

    Attributes:
        steps: Number of steps of each stage.
        ended_early: Where `limbeck finish` ended it before its last step; None for a whole run.
        held_out: Figures on held-out text, by measure.
        unavailable: Measure to the reason why it has no figure.
        scores: Scores by task.
    """

    title: str = ""
    seed: int | None = None
    id: str | None = None
    shape: str = ""
    status: str = ""
    problem: str | None = None
    folder: str = ""
    model: str = ""
    steps: list[int] = Field(default_factory=list)
    ended_early: EarlyEnd | None = None
    tokens: Number | None = None
    seconds: Number | None = None
    held_out: dict[str, Number | None] | None = None
    unavailable: dict[str, str] = Field(default_factory=dict)
    scores: dict[str, Number | None] = Field(default_factory=dict)
    versions: dict[str, str] | None = None
    git_commit: str | None = None
    device: str | None = None

    @property
    def shown_status(self) -> str:
        """The status in words, as `limbeck status` has it: of an early end with its place."""
        if self.ended_early is None:
            return self.status
        return f"{self.status}, {self.ended_early.short}"


class HeldOutMeasure(Record):
    """A measure on held-out text: how many digits it is shown with, and whether the `highest` or `lowest` is best."""

    key: str
    title: str
    digits: int = 3
    best: str = "highest"


class HeldOutFigures(File):
    """Figures of a model on held-out text; they can be compared with figures of equal `settings` only.

    A figure is None where there is none; `unavailable` has the reason.
    """

    FILE = HELD_OUT_RECORD

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
    """The speedup of a model over the teacher, at a batch size and length; a `note` says that the machine was busy."""

    batch: int
    length: int
    speedup: Number
    note: str | None = None


class ModelCost(Record):
    """Parameters and speedups of a model."""

    parameters: Number | None = None
    speedups: list[Speedup] = Field(default_factory=list)


class ComparedScores(Scores):
    """Scores, and figures on held-out text by measure; `main` is the figure that ranks the rows."""

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


class ComparedRow(ComparedVariant, ComparedScores):
    """A variant, pooled over seeds.

    Rows of rank 1 are those that no other row exceeds by more than chance. `finished` of the `wanted` runs are there.
    """

    shape: str = ""
    seeds: list[int] = Field(default_factory=list)
    finished: int = 0
    wanted: int = 0
    rank: int | None = None
    best_mapping: bool = False

    @property
    def place(self) -> int | None:
        """Its rank; None for a single seed, though earlier versions recorded a rank for it too."""
        return self.rank if self.finished > 1 else None

    @property
    def over_seeds(self) -> Interval | None:
        """The interval of the main figure over seeds; None for fewer than two seeds, or for seeds that agree."""
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

    FILE = COMPARISON_RECORD

    plan: PlannedComparison = Field(default_factory=PlannedComparison)
    fixed: dict[str, Any] = Field(default_factory=dict)
    corpus: ComparedText = Field(default_factory=ComparedText)
    teacher: ComparedTeacher = Field(default_factory=ComparedTeacher)
    impossible: list[ComparedVariant] = Field(default_factory=list)
    cells: list[ComparisonCell] = Field(default_factory=list)
    summary: ComparisonSummary = Field(default_factory=ComparisonSummary)
    costs: Costs | None = None
