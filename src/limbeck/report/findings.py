"""What lies in the folders that a report is asked for, as it was read: nothing of it is trusted to be whole."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from limbeck.core.blocks import NOTHING, Facts, Table, duration
from limbeck.core.files import read_json
from limbeck.core.studies import Comparison, Evaluation, EvaluationCell, EvaluationRequest
from limbeck.report.plots import Point
from limbeck.report.records import number
from limbeck.training.record import LOG, RunStatus
from limbeck.training.stage import DONE

# How many tokens a second a stage trained on, from one line of its log to the next.


class TokenRate:
    """Reads the lines of a log in their order and tells the rate since the line before.

    The rate is (tokens here - tokens before) / (seconds here - seconds before - seconds of evaluation between).
    Lines of runs that logged no times have none, and neither has the line after them.
    """

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = (0.0, 0.0)  # Tokens and seconds.
        self._paused = 0.0

    def read(self, entry: Mapping[str, Any]) -> float | None:
        """Take the next line; return tokens a second where it tells the loss of steps, and when that was."""
        if "loss" not in entry:
            self._paused += max(number(entry, "eval_runtime") or 0.0, 0.0)
            return None
        tokens, seconds = number(entry, "tokens"), number(entry, "seconds")
        before, paused = self._before, self._paused
        self._before = None if tokens is None or seconds is None else (tokens, seconds)
        self._paused = 0.0
        if before is None or tokens is None or seconds is None:
            return None
        spent, trained = seconds - before[1] - paused, tokens - before[0]
        return trained / spent if spent > 0 and trained >= 0 else None


# The course of a stage: its log as curves, thinned to what a figure can show.


RATE = "tokens_per_second"
"""The curve that is made of the times and tokens of a log; in no log itself."""
MOST_POINTS = 400
"""Points of a curve in a figure; more would not be distinguished."""
_STATE = "trainer_state.json"
_TERM, _HELD_OUT = "loss_", "eval_"


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
        curves: By name: `loss`, `loss_TERM`, `eval_loss`, `eval_TERM`, `learning_rate`, `grad_norm`, `RATE`.
        reached: The last `step`, `tokens` and `seconds` of a line with a loss, as far as they were logged.
        lines: How many entries there were.
        not_finite: How many values were infinite or no numbers, and are left out.
        damaged: How many lines could not be read.
    """

    source: str = ""
    curves: Mapping[str, Curve] | None = None
    reached: Mapping[str, float] = field(default_factory=dict)
    lines: int = 0
    not_finite: int = 0
    damaged: int = 0

    def curve(self, name: str) -> Curve | None:
        """Return a curve by its name."""
        return (self.curves or {}).get(name)

    def terms(self) -> list[str]:
        """Return the names of the terms, as they were logged."""
        return [name.removeprefix(_TERM) for name in self.curves or {} if name.startswith(_TERM)]


def read_stage_log(folder: Path) -> StageLog:
    """Read the log of a stage as far as it goes; where there is none, what its last checkpoint knows."""
    path = folder / LOG
    found = _gather(_lines(path, whole=(folder / DONE).is_file()), LOG) if path.is_file() else StageLog()
    if found.lines:
        return found
    checkpoints = sorted(folder.glob("checkpoint-*"), key=_step_of)
    for checkpoint in reversed(checkpoints):
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
        whole: Whether it should be; else its last line may be one that is being written, and is left out.
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
    steps: dict[str, array[float]] = {}
    values: dict[str, array[float]] = {}
    reached: dict[str, float] = {}
    rate = TokenRate()
    lines = not_finite = damaged = 0

    def add(name: str, step: float, value: float) -> None:
        steps.setdefault(name, array("d")).append(step)
        values.setdefault(name, array("d")).append(value)

    for entry in found:
        step = number(entry, "step")
        if step is None:
            damaged += 1
            continue
        lines += 1
        if "loss" in entry:
            named = {name: number(entry, name) for name in ("step", "tokens", "seconds")}
            reached = {name: value for name, value in named.items() if value is not None}
        if (tokens_per_second := rate.read(entry)) is not None:
            add(RATE, step, tokens_per_second)
        for name, value in entry.items():
            if not _is_curve(name) or not isinstance(value, (int, float)) or isinstance(value, bool):
                continue
            finite = number(entry, name)
            if finite is None:
                not_finite += 1
            else:
                add(name, step, finite)
    terms = {name.removeprefix(_TERM) for name in values if name.startswith(_TERM)}
    held_out = {f"{_HELD_OUT}{name}" for name in ("loss", *terms)}
    curves = {
        name: thin(sorted(zip(steps[name], values[name], strict=True), key=_first))
        for name in values
        if not name.startswith(_HELD_OUT) or name in held_out
    }
    return StageLog(source, curves, reached, lines, not_finite, damaged)


def _is_curve(name: str) -> bool:
    return name in ("loss", "learning_rate", "grad_norm") or name.startswith((_TERM, _HELD_OUT))


def _first(point: Point) -> float:
    return point[0]


def _step_of(checkpoint: Path) -> int:
    number = checkpoint.name.removeprefix("checkpoint-")
    return int(number) if number.isascii() and number.isdigit() else -1


Record: TypeAlias = Mapping[str, Any]


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
    record: Comparison
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
    """An evaluation: its tables, its cells, and its request."""

    folder: Path
    title: str
    summary: Evaluation
    cells: tuple[EvaluationCell, ...]
    asked: EvaluationRequest
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class InspectionFound:
    """What inspections left in a folder, by their names."""

    folder: Path
    title: str
    results: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


Found: TypeAlias = RunFound | ComparisonFound | SearchFound | EvaluationFound | InspectionFound


# How a run that is not finished stands, as `limbeck status` tells it.


def run_state(status: RunStatus) -> Facts:
    """Say where a run is, or was at last, and when it last gave a sign of life.

    Args:
        status: Of the run, as it was read for the page.
    """
    return Facts(tuple((name, value) for name, value in _pairs(status) if value))


def run_states(states: Sequence[RunStatus]) -> Table:
    """Say of several runs how they stand, a row each."""
    columns = ("Status", "At", "Step", "Loss", "Tokens/s", "Last sign of life")
    rows = tuple(
        (status.name, *(found[name] or NOTHING for name in columns))
        for status in states
        for found in [dict(_pairs(status))]
    )
    return Table("Runs that are not finished", ("", *columns), rows, words=(1, 2, 6))


def _pairs(status: RunStatus) -> tuple[tuple[str, str], ...]:
    step = f"{status.step:,} of {status.steps:,}" if status.step is not None and status.steps is not None else ""
    return (
        ("Status", f"{status.status}, but silent" if status.silent else status.status),
        ("At", status.stage or status.activity or ""),
        ("Step", step),
        ("Loss", "" if status.loss is None else f"{status.loss:.5g}"),
        ("Tokens/s", "" if status.tokens_per_second is None else f"{status.tokens_per_second:,.0f}"),
        ("Left of the stage", "" if status.seconds_left is None else duration(status.seconds_left)),
        ("Last sign of life", last_sign(status.seconds_since)),
        ("Last checkpoint", "" if status.checkpoint is None else f"step {status.checkpoint:,}"),
        ("Process", "" if status.pid is None else f"{status.pid} on {status.host or 'an unknown host'}"),
    )


def last_sign(seconds: float | None) -> str:
    """Say how long before the page was made there was a sign of life; nothing where none is known."""
    return "" if seconds is None else f"{duration(seconds)} before this page was made"
