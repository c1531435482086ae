"""What lies in the folders that a report is about, as far as it can be read, and the names of runs and models."""

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from limbeck.core.blocks import NOTHING, Facts, Table, duration
from limbeck.core.files import read_json
from limbeck.core.paths import LOG, short_model_name
from limbeck.core.records import PlannedStage, Run, Stage
from limbeck.core.run_status import RunStatus
from limbeck.core.studies import Comparison, Evaluation, EvaluationCell, EvaluationRequest, Search
from limbeck.report.plots import Point
from limbeck.report.quality import metric_name

# The course of a stage: its log as curves, thinned to what a figure can show.


RATE = "tokens_per_second"
"""The curve that is made of the times and tokens of a log; in no log itself."""
MOST_POINTS = 400
"""Points of a curve in a figure; more would not be distinguished."""
_STATE = "trainer_state.json"
_TERM, _HELD_OUT, _DEVELOPMENT = "loss_", "eval_", "development_"


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps of a stage.

    Args:
        points: (step, value) as it was logged; of more than `MOST_POINTS` the means of neighbours.
        ranges: The least and the greatest value that each mean is of; empty where nothing was thinned.
        logged: How many were logged.
    """

    points: tuple[Point, ...]
    ranges: tuple[tuple[float, float], ...]
    logged: int


@dataclass(frozen=True)
class StageLog:
    """What a stage logged.

    Args:
        source: The file that it is from; empty where there is none.
        curves: By name: `loss`, `loss_TERM`, `eval_loss`, `eval_TERM`, `development_METRIC`, `learning_rate`,
            `grad_norm`, `RATE`.
        reached: The last `step`, `tokens` and `seconds` of a line with a loss, as far as they were logged.
        lines: How many entries there were.
        not_finite: How many values were infinite or no numbers, and are left out.
        damaged: How many lines could not be read.
    """

    source: str = ""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    lines: int = 0
    not_finite: int = 0
    damaged: int = 0

    def terms(self) -> list[str]:
        """Return the names of the terms, as they were logged."""
        return [name.removeprefix(_TERM) for name in self.curves if name.startswith(_TERM)]

    def scores(self) -> dict[str, Curve]:
        """Return the scores on development rows, by their metrics in words."""
        return {
            metric_name(name.removeprefix(_DEVELOPMENT)): curve
            for name, curve in self.curves.items()
            if name.startswith(_DEVELOPMENT)
        }


def read_stage_log(folder: Path) -> StageLog:
    """Read the log of a stage as far as it goes; where there is none, that of its last checkpoint."""
    path = folder / LOG
    found = _gather(_lines(path, whole=(folder / Stage.FILE).is_file()), LOG) if path.is_file() else StageLog()
    if found.lines:
        return found
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=_step_of, reverse=True):
        history = read_json(checkpoint / _STATE).get("log_history")
        if isinstance(history, list):
            return _gather(history, f"{checkpoint.name}/{_STATE}")
    return found


def thin(points: Sequence[Point], groups: int = MOST_POINTS // 2) -> Curve:
    """Gather neighbours where there are more points than a figure can show; no spike is lost to the ranges.

    Args:
        points: (step, value), in the order of the steps.
        groups: How many means are left.
    """
    if len(points) <= 2 * groups:
        return Curve(tuple(points), (), len(points))
    edges = [len(points) * group // groups for group in range(groups + 1)]
    parts = [points[start:end] for start, end in pairwise(edges)]
    means = tuple((round(fmean(x for x, _ in part), 1), fmean(y for _, y in part)) for part in parts)
    ranges = tuple((min(y for _, y in part), max(y for _, y in part)) for part in parts)
    return Curve(means, ranges, len(points))


def _lines(path: Path, *, whole: bool) -> Iterator[Any]:
    """Read a log line by line; None for a line that is damaged.

    Args:
        path: The file.
        whole: Whether it should be; else its last line may still be written, and is left out.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    if whole or line.endswith("\n"):
                        yield None
    except OSError:
        yield None


def _gather(found: Iterable[Any], source: str) -> StageLog:
    """Make curves of the lines of a log.

    The rate of a line is (tokens - tokens before) / (seconds - seconds before - seconds of evaluation between).
    Lines of runs that logged no times have none, and neither has the line after them.
    """
    places: dict[str, tuple[array[float], array[float]]] = {}
    reached: dict[str, float] = {}
    before: tuple[float, float] | None = (0.0, 0.0)  # Tokens and seconds.
    lines = not_finite = damaged = 0
    paused = 0.0
    for entry in found:
        step = _number(entry, "step") if isinstance(entry, Mapping) else None
        if step is None:
            damaged += 1
            continue
        lines += 1
        values = {name: _number(entry, name) for name, value in entry.items() if _is_curve(name) and _is_number(value)}
        if "loss" in entry:
            tokens, seconds = _number(entry, "tokens"), _number(entry, "seconds")
            named = {"step": step, "tokens": tokens, "seconds": seconds}
            reached = {name: value for name, value in named.items() if value is not None}
            here = None if tokens is None or seconds is None else (tokens, seconds)
            if before is not None and here is not None:
                spent, trained = here[1] - before[1] - paused, here[0] - before[0]
                values |= {RATE: trained / spent} if spent > 0 and trained >= 0 else {}
            before, paused = here, 0.0
        else:
            paused += max(_number(entry, "eval_runtime") or 0.0, 0.0)
        for name, value in values.items():
            if value is None:
                not_finite += 1
            else:
                steps, known = places.setdefault(name, (array("d"), array("d")))
                steps.append(step)
                known.append(value)
    held_out = {f"{_HELD_OUT}{name.removeprefix(_TERM)}" for name in places if name.startswith(_TERM)} | {"eval_loss"}
    curves = {
        name: thin(sorted(zip(*pair, strict=True), key=lambda point: point[0]))
        for name, pair in places.items()
        if not name.startswith(_HELD_OUT) or name in held_out
    }
    return StageLog(source, curves, reached, lines, not_finite, damaged)


def _number(entry: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number of a line; None for anything else."""
    value: Any = entry.get(name)
    try:
        return float(value) if _is_number(value) and math.isfinite(value) else None
    except OverflowError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_curve(name: str) -> bool:
    return name in ("loss", "learning_rate", "grad_norm") or name.startswith((_TERM, _HELD_OUT, _DEVELOPMENT))


def _step_of(checkpoint: Path) -> int:
    number = checkpoint.name.removeprefix("checkpoint-")
    return int(number) if number.isascii() and number.isdigit() else -1


@dataclass(frozen=True)
class StageFound:
    """A stage of a run.

    Args:
        title: Its name.
        record: Its record, empty where it is not finished.
        plan: The recipe's stage.
        log: Its course.
        layer_cosines: Measured cosines of its teacher's layers, for the mapping "contribution".
    """

    title: str
    record: Stage
    plan: PlannedStage
    log: StageLog
    layer_cosines: Sequence[float] = ()

    @property
    def is_finished(self) -> bool:
        """Whether there is a record of its end."""
        return not self.record.is_empty

    @property
    def method(self) -> str:
        """The name of its method."""
        return self.record.method or self.plan.method_name


@dataclass(frozen=True, kw_only=True)
class Found:
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
class RunFound(Found):
    """A run.

    Args:
        record: `run.json`.
        status: How it stands.
        stages: In order.
        recipe: `recipe.yaml`, as it is.
        inside: Evaluations, searches and inspections in its folder.
    """

    record: Run
    status: RunStatus
    stages: tuple[StageFound, ...]
    recipe: str
    inside: tuple[Found, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComparisonFound(Found):
    """A comparison.

    Args:
        record: `comparison.json`.
        runs: One of each method, mapping and student.
        unfinished: How runs stand that were begun and are not finished, unless the comparison is.
    """

    record: Comparison
    runs: tuple[RunFound, ...]
    unfinished: tuple[RunStatus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchFound(Found):
    """A search of one of the three kinds.

    Args:
        record: `search.json`.
        so_far: The content of its study before it is finished, as the record will have it.
        standing: How it stands then.
    """

    record: Search
    so_far: Search | None = None
    standing: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> str:
        """`finished`, `running`, `interrupted`, `dead` or, where nothing tells, `not finished`."""
        return "finished" if self.record.is_finished else dict(self.standing).get("Status", "not finished")


@dataclass(frozen=True, kw_only=True)
class EvaluationFound(Found):
    """An evaluation: its tables, its cells, and its request."""

    summary: Evaluation
    cells: tuple[EvaluationCell, ...]
    asked: EvaluationRequest


@dataclass(frozen=True, kw_only=True)
class InspectionFound(Found):
    """The results of inspections in a folder, plain values by the inspections' names."""

    results: Mapping[str, Any] = field(default_factory=dict)


# How a run that is not finished stands, as `limbeck status` shows it.


def run_state(status: RunStatus) -> Facts:
    """Say where a run is, or was at last, and when it last gave an update."""
    return Facts(tuple((name, value) for name, value in _pairs(status) if value))


def run_states(states: Sequence[RunStatus]) -> Table:
    """Say of several runs how they stand, a row each."""
    columns = ("Status", "Stage", "Step", "Loss", "Tokens/s", LAST_UPDATE)
    described = [(status.name, dict(_pairs(status))) for status in states]
    rows = tuple((name, *(found[column] or NOTHING for column in columns)) for name, found in described)
    return Table("Runs that are not finished", ("", *columns), rows, words=(1, 2, 6))


def _pairs(status: RunStatus) -> tuple[tuple[str, str], ...]:
    step = f"{status.step:,} of {status.steps:,}" if status.step is not None and status.steps is not None else ""
    return (
        ("Status", status.shown),
        ("Stage", status.stage or status.activity or ""),
        ("Step", step),
        ("Loss", "" if status.loss is None else f"{status.loss:.5g}"),
        ("Tokens/s", "" if status.tokens_per_second is None else f"{status.tokens_per_second:,.0f}"),
        ("Time left in this stage", "" if status.seconds_left is None else duration(status.seconds_left)),
        (LAST_UPDATE, last_update(status.seconds_since)),
        ("Last checkpoint", "" if status.checkpoint is None else f"step {status.checkpoint:,}"),
        ("Process", "" if status.pid is None else f"{status.pid} on {status.host or 'an unknown host'}"),
    )


LAST_UPDATE = "Last update"


def last_update(seconds: float | None) -> str:
    """Say how long before the page was made there was an update; nothing where none is known."""
    return "" if seconds is None else f"{duration(seconds)} before this page was made"


# Names of runs, comparisons, searches and models in cards and reports.


_DEFAULTS = ("", "run", "comparison", "mapping", "architecture", "teacher-layer")


def title_of(name: str | None, folder: Path) -> str:
    """Return a name, or the folder's where it is none or the default of its kind.

    Args:
        name: As the record has it.
        folder: Of the run, comparison or search.
    """
    given = " ".join((name or "").split())
    return folder.resolve().name or given if given in _DEFAULTS else given


def without_path(name: str) -> str:
    """Return a name of the Hub or of a package as it is, and of a folder its last part."""
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return short_model_name(name) if is_path else name
