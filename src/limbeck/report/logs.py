"""The log of a stage, read as curves that are thinned to what a figure can show."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from limbeck.core.files import read_json
from limbeck.core.paths import LOG
from limbeck.core.records import Stage
from limbeck.report.names import metric_name

if TYPE_CHECKING:
    from limbeck.report.plots import Point  # It imports matplotlib, which takes seconds.

RATE = "tokens_per_second"
"""The curve that is made of the times and tokens of a log; in no log itself."""
MOST_POINTS = 400
"""Points of a curve in a figure; more would not be distinguished."""
_TRAINER_STATE = "trainer_state.json"
_TERM = "loss_"
_HELD_OUT = "eval_"
_DEVELOPMENT = "development_"


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
    """The log of a stage.

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
        scores = {}
        for name, curve in self.curves.items():
            if name.startswith(_DEVELOPMENT):
                scores[metric_name(name.removeprefix(_DEVELOPMENT))] = curve
        return scores


def read_stage_log(folder: Path) -> StageLog:
    """Read the log of a stage as far as it goes; where there is none, that of its last checkpoint."""
    path = folder / LOG
    log = StageLog()
    if path.is_file():
        is_whole = (folder / Stage.FILE).is_file()
        log = _log_of(_read_lines(path, is_whole=is_whole), LOG)
    if log.lines:
        return log
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=_step_of, reverse=True):
        history = read_json(checkpoint / _TRAINER_STATE).get("log_history")
        if isinstance(history, list):
            return _log_of(history, f"{checkpoint.name}/{_TRAINER_STATE}")
    return log


def _step_of(checkpoint: Path) -> int:
    number = checkpoint.name.removeprefix("checkpoint-")
    return int(number) if number.isascii() and number.isdigit() else -1


def thin(points: Sequence[Point], groups: int = MOST_POINTS // 2) -> Curve:
    """Return means of neighbours where there are more points than a figure can show; ranges keep every spike.

    Args:
        points: (step, value), in the order of the steps.
        groups: How many means are left.
    """
    if len(points) <= 2 * groups:
        return Curve(tuple(points), (), len(points))
    # Groups are of equal size, give or take a point.
    means = []
    ranges = []
    for group in range(groups):
        start = len(points) * group // groups
        end = len(points) * (group + 1) // groups
        steps, values = zip(*points[start:end], strict=True)
        means.append((round(fmean(steps), 1), fmean(values)))
        ranges.append((min(values), max(values)))
    return Curve(tuple(means), tuple(ranges), len(points))


def _read_lines(path: Path, *, is_whole: bool) -> Iterator[Any]:
    """Read a log line by line; None for a line that is damaged.

    Args:
        path: The file.
        is_whole: Whether nothing is written any more; else the last line may be half written, and is left out.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    if is_whole or line.endswith("\n"):
                        yield None
    except OSError:
        yield None


def _log_of(entries: Iterable[Any], source: str) -> StageLog:
    """Make curves of the entries of a log."""
    gathered = _Gathered()
    for entry in entries:
        gathered.add(entry)
    return StageLog(source, gathered.curves(), gathered.reached, gathered.lines, gathered.not_finite, gathered.damaged)


class _Gathered:
    """The values of a log by their names, in compact arrays since a log may have millions of lines."""

    def __init__(self) -> None:
        self.reached: dict[str, float] = {}
        self.lines = 0
        self.not_finite = 0
        self.damaged = 0
        self._steps: dict[str, array[float]] = {}
        self._values: dict[str, array[float]] = {}
        # Tokens and seconds of the line before; None where that line had none.
        self._before: tuple[float, float] | None = (0.0, 0.0)
        self._evaluation_seconds = 0.0

    def add(self, entry: Any) -> None:
        """Add an entry of the log: a mapping with a step, else it is damaged."""
        step = _finite(entry, "step") if isinstance(entry, Mapping) else None
        if step is None:
            self.damaged += 1
            return
        # Lines of training have a loss; the others are evaluations, whose time does not count as training.
        self.lines += 1
        for name in entry:
            if _is_curve(name) and _is_number(entry[name]):
                self._add_value(name, step, _finite(entry, name))
        if "loss" in entry:
            self._add_rate(entry, step)
        else:
            self._evaluation_seconds += max(_finite(entry, "eval_runtime") or 0.0, 0.0)

    def _add_value(self, name: str, step: float, value: float | None) -> None:
        if value is None:
            self.not_finite += 1
            return
        self._steps.setdefault(name, array("d")).append(step)
        self._values.setdefault(name, array("d")).append(value)

    def _add_rate(self, entry: Mapping[str, Any], step: float) -> None:
        """Add tokens a second since the last line with a loss, without the seconds of evaluations between.

        Lines of runs that logged no times have no rate, and neither has the line after them.
        """
        tokens = _finite(entry, "tokens")
        seconds = _finite(entry, "seconds")
        reached = {"step": step, "tokens": tokens, "seconds": seconds}
        self.reached = {name: value for name, value in reached.items() if value is not None}

        now = None
        if tokens is not None and seconds is not None:
            now = (tokens, seconds)
            if self._before is not None:
                trained = tokens - self._before[0]
                spent = seconds - self._before[1] - self._evaluation_seconds
                if spent > 0 and trained >= 0:
                    self._add_value(RATE, step, trained / spent)
        self._before = now
        self._evaluation_seconds = 0.0

    def curves(self) -> dict[str, Curve]:
        """Return all curves, in the order of their steps; of held-out values the loss and those of terms."""
        held_out = {"eval_loss"}
        held_out |= {f"{_HELD_OUT}{name.removeprefix(_TERM)}" for name in self._steps if name.startswith(_TERM)}
        curves = {}
        for name, steps in self._steps.items():
            if name.startswith(_HELD_OUT) and name not in held_out:
                continue
            points = sorted(zip(steps, self._values[name], strict=True), key=lambda point: point[0])
            curves[name] = thin(points)
        return curves


def _finite(entry: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number of an entry; None for anything else."""
    value: Any = entry.get(name)
    if not _is_number(value):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_curve(name: str) -> bool:
    return name in ("loss", "learning_rate", "grad_norm") or name.startswith((_TERM, _HELD_OUT, _DEVELOPMENT))
