"""The course of a stage: its log as curves, thinned to what a figure can show."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from limbeck.core.files import read_json
from limbeck.report.page.marks import Point
from limbeck.report.page.plain_values import number
from limbeck.report.page.token_rate import TokenRate
from limbeck.training.record import LOG
from limbeck.training.stage import DONE

RATE = "tokens_per_second"
"""The curve that is made of the times and tokens of a log; in no log itself."""
MOST_POINTS = 400
"""Points of a curve in a figure; more would not be told apart."""
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
