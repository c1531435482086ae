"""What lies in the folders that a report is asked for, as it was read: nothing of it is trusted to be whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.report.page.stage_log import StageLog
from limbeck.training.record import RunStatus

Record: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class StageFound:
    """A stage of a run.

    Args:
        title: Its name.
        record: What it left, empty where it is not finished.
        plan: The recipe's stage.
        log: Its course.
        layer_cosines: What it measured of its teacher's layers, for the mapping "contribution".
    """

    title: str
    record: Record
    plan: Record
    log: StageLog
    layer_cosines: Sequence[float] = ()

    @property
    def method(self) -> str:
        """The name of its method."""
        named = self.plan.get("method")
        found = named.get("name") if isinstance(named, Mapping) else None
        return str(self.record.get("method") or found or "")


@dataclass(frozen=True)
class RunFound:
    """A run.

    Args:
        folder: Its folder.
        title: Its name.
        record: `run.json`.
        status: How it stands.
        stages: In order.
        recipe: `recipe.yaml`, as it is.
        problems: What could not be read.
        inside: Evaluations, searches and inspections in its folder.
    """

    folder: Path
    title: str
    record: Record
    status: RunStatus
    stages: tuple[StageFound, ...]
    recipe: str
    problems: tuple[str, ...] = ()
    inside: tuple[Found, ...] = ()


@dataclass(frozen=True)
class ComparisonFound:
    """A comparison.

    Args:
        folder: Its folder.
        title: Its name.
        record: `comparison.json`.
        runs: One of each method, mapping and student.
        problems: What could not be read.
        unfinished: How runs stand that were begun and are not finished, unless the comparison is.
    """

    folder: Path
    title: str
    record: Record
    runs: tuple[RunFound, ...]
    problems: tuple[str, ...] = ()
    unfinished: tuple[RunStatus, ...] = ()


@dataclass(frozen=True)
class SearchFound:
    """A search of one of the three kinds.

    Args:
        folder: Its folder.
        title: Its name.
        record: `search.json`.
        problems: What could not be read.
        so_far: What its study holds before it is finished, as the record will have it.
        standing: How it stands then.
    """

    folder: Path
    title: str
    record: Record
    problems: tuple[str, ...] = ()
    so_far: Record = field(default_factory=dict)
    standing: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> str:
        """`finished`, `running`, `interrupted`, `dead` or, where nothing tells, `not finished`."""
        if self.record.get("status") == "finished":
            return "finished"
        return dict(self.standing).get("Status", "not finished")


@dataclass(frozen=True)
class EvaluationFound:
    """An evaluation: its tables, its cells, and what it was asked for."""

    folder: Path
    title: str
    summary: Record
    cells: tuple[Record, ...]
    asked: Record
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class InspectionFound:
    """What inspections left in a folder, by their names."""

    folder: Path
    title: str
    results: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


Found: TypeAlias = RunFound | ComparisonFound | SearchFound | EvaluationFound | InspectionFound
