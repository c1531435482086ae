"""The subjects of a report: folders of runs, comparisons, searches, evaluations and inspections, as they were read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.core.records import PlannedStage, Run, Stage
from limbeck.core.run_status import RunStatus
from limbeck.core.studies import Comparison, Evaluation, EvaluationCell, EvaluationRequest, Search
from limbeck.report.logs import StageLog


@dataclass(frozen=True)
class StageFolder:
    """A stage of a run.

    Args:
        title: Name of the stage.
        record: The record of its end, which is empty until it is finished.
        plan: The stage as the recipe plans it.
        log: The log of its training.
    """

    title: str
    record: Stage
    plan: PlannedStage
    log: StageLog

    @property
    def is_finished(self) -> bool:
        """Whether there is a record of its end."""
        return not self.record.is_empty

    @property
    def method(self) -> str:
        """The name of its method."""
        return self.record.method or self.plan.method_name

    @property
    def trains_assistant(self) -> bool:
        """Whether it trains a student of its own, such as a teacher assistant, and not the run's."""
        return self.record.student is not None or self.plan.student is not None

    @property
    def steps(self) -> float | None:
        """Trained steps; of a stage that is not finished those of its log, as far as they are known."""
        return self.record.steps if self.is_finished else self.log.reached.get("step")

    @property
    def tokens(self) -> float | None:
        """Tokens that its student read; of a stage that is not finished those of its log, as far as they are known."""
        return self.record.tokens if self.is_finished else self.log.reached.get("tokens")

    @property
    def seconds(self) -> float | None:
        """Time of training; of a stage that is not finished that of its log, as far as it is known."""
        return self.record.seconds if self.is_finished else self.log.reached.get("seconds")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A folder of any kind.

    Args:
        folder: The folder.
        title: Its name.
        problems: What could not be read.
    """

    folder: Path
    title: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunFolder(Subject):
    """A run.

    Args:
        record: `run.json`.
        status: Its status.
        stages: In order.
        recipe: `recipe.yaml`, as it is.
        inside: Evaluations, searches and inspections in its folder.
    """

    record: Run
    status: RunStatus
    stages: tuple[StageFolder, ...]
    recipe: str
    inside: tuple[Subject, ...] = ()

    @property
    def has_assistants(self) -> bool:
        """Whether a stage that has begun trains another student than the run's."""
        return any(stage.trains_assistant and stage.seconds for stage in self.stages)


@dataclass(frozen=True, kw_only=True)
class ComparisonFolder(Subject):
    """A comparison.

    Args:
        record: `comparison.json`.
        run_by_combination: One run of each method, mapping and student, by these: `minilmv2, last on 6x384`.
        unfinished: Statuses of runs that were begun and are not finished, unless the comparison is.
    """

    record: Comparison
    run_by_combination: Mapping[str, RunFolder]
    unfinished: tuple[RunStatus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchFolder(Subject):
    """A search of one of the three kinds.

    Args:
        record: `search.json`.
        so_far: The content of its study before it is finished, as the record will have it.
        progress: Its progress until then, as names and values; `Status` is one of them.
    """

    record: Search
    so_far: Search | None = None
    progress: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> str:
        """`finished`, `running`, `interrupted`, `dead` or, where nothing tells, `not finished`."""
        if self.record.is_finished:
            return "finished"
        return dict(self.progress).get("Status", "not finished")

    @property
    def content(self) -> Search:
        """The record of a finished search, else the content of its study where that could be read."""
        return self.so_far or self.record


@dataclass(frozen=True, kw_only=True)
class EvaluationFolder(Subject):
    """An evaluation: its tables, its cells, its request, and whether a process of this machine works on it."""

    summary: Evaluation
    cells: tuple[EvaluationCell, ...]
    request: EvaluationRequest
    is_running: bool = False


@dataclass(frozen=True, kw_only=True)
class InspectionFolder(Subject):
    """The results of inspections in a folder, plain values by the inspections' names."""

    results: Mapping[str, Any] = field(default_factory=dict)
