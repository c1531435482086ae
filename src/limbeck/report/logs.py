"""The log of a stage, read as curves.

Each line of a log is a JSON object with a `step` and the values of that step. A *curve* is the course of one value over
the steps. Damaged lines, and values that are infinite or NaN, are left out and counted.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from limbeck.core.paths import LOG

if TYPE_CHECKING:
    from numpy.typing import NDArray

Curve: TypeAlias = "NDArray[np.float64]"
"""The logged values of a quantity, in the order of the steps: (step, value) a row."""
# Beginnings of the names of values in a log: of the terms of the training loss, of values on held-out text, and of
# scores on development rows. The loss itself is `loss`.
_TERM = "loss_"
_HELD_OUT = "eval_"
_DEVELOPMENT = "development_"


@dataclass(frozen=True)
class StageLog:
    """The log of a stage; without a file it has no lines.

    Args:
        curves: By name: `loss`, `loss_TERM`, `eval_loss`, `eval_TERM`, `development_METRIC`.
        reached: The last `step`, `tokens` and `seconds` of a line with a loss, as far as they were logged.
        lines: How many lines could be read.
        not_finite: How many values were infinite or no numbers, and are left out.
        damaged: How many lines could not be read.
        problem: Why the file could not be read, or not to its end; empty where it could.
    """

    curves: Mapping[str, Curve] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    lines: int = 0
    not_finite: int = 0
    damaged: int = 0
    problem: str = ""

    def terms(self) -> list[str]:
        """Return the names of the terms, as they were logged."""
        return [name.removeprefix(_TERM) for name in self.curves if name.startswith(_TERM)]

    def scores(self) -> dict[str, Curve]:
        """Return the scores on development rows, by their metrics."""
        scores = {}
        for name, curve in self.curves.items():
            if name.startswith(_DEVELOPMENT):
                scores[name.removeprefix(_DEVELOPMENT)] = curve
        return scores


def read_stage_log(folder: Path) -> StageLog:
    """Read the log in the folder of a stage, as far as it goes."""
    reader = _LogReader()
    problem = ""
    try:
        with (folder / LOG).open(encoding="utf-8", errors="replace") as file:
            for line in file:
                reader.add(line)
    except FileNotFoundError:
        pass
    except OSError as error:
        problem = f"{LOG} cannot be read: {error.strerror}."
    return StageLog(reader.curves(), reader.reached, reader.lines, reader.not_finite, reader.damaged, problem)


class _LogReader:
    """The values of the lines of a log that were read so far."""

    def __init__(self) -> None:
        self.reached: dict[str, float] = {}
        self.lines = 0
        self.not_finite = 0
        self.damaged = 0
        # By the name of a value: step, value, step, value … An array is compact, and a log may have millions of lines.
        self._values: dict[str, array[float]] = {}

    def add(self, line: str) -> None:
        """Add a line of the log; it is damaged if it is not a JSON object with a number as its step."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            # `RecursionError` is of JSON that is nested too deeply. A line that is being written is no damage: it is
            # the last one of a log, and has no end so far.
            is_unfinished = not line.endswith("\n")
            if not is_unfinished:
                self.damaged += 1
            return
        step = None
        if isinstance(entry, dict):
            step = _finite_number(entry.get("step"))
        if step is None:
            self.damaged += 1
            return

        self.lines += 1
        self._add_points(step, entry)
        # Lines without a loss are written after an evaluation, whose time is not counted as training. So only a line
        # with a loss says how far the training has come.
        if "loss" in entry:
            self.reached = {}
            for name in ("step", "tokens", "seconds"):
                number = _finite_number(entry.get(name))
                if number is not None:
                    self.reached[name] = number

    def _add_points(self, step: float, entry: Mapping[str, Any]) -> None:
        """Add a point to the curve of each value of a line that is drawn; an infinite value or NaN is counted only."""
        for name, value in entry.items():
            is_drawn = name == "loss" or name.startswith((_TERM, _HELD_OUT, _DEVELOPMENT))
            if not is_drawn or not _is_number(value):
                continue
            number = _finite_number(value)
            if number is None:
                self.not_finite += 1
                continue
            points = self._values.setdefault(name, array("d"))
            points.append(step)
            points.append(number)

    def curves(self) -> dict[str, Curve]:
        """Return all curves, by name.

        Of the values whose names begin with `eval_`, only the loss on held-out text and its terms are curves. The
        others, such as `eval_runtime`, are measurements that the trainer of transformers logs.
        """
        held_out_names = {"eval_loss"}
        for name in self._values:
            if name.startswith(_TERM):
                held_out_names.add(f"{_HELD_OUT}{name.removeprefix(_TERM)}")
        curves = {}
        for name, values in self._values.items():
            is_measurement_of_trainer = name.startswith(_HELD_OUT) and name not in held_out_names
            if is_measurement_of_trainer:
                continue
            # One row (step, value) for each point.
            points = np.array(values).reshape(-1, 2)
            # A resumed run logs some steps twice. A stable sort keeps the order of equal steps.
            steps = points[:, 0]
            curves[name] = points[np.argsort(steps, kind="stable")]
        return curves


def _finite_number(value: Any) -> float | None:
    """Return a value as a float if it is a finite number, else None."""
    if not _is_number(value):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # A whole number that is too large for a float.
        return None


def _is_number(value: Any) -> bool:
    """Return whether a value of JSON is a number; Python counts `True` and `False` as whole numbers too."""
    return isinstance(value, int | float) and not isinstance(value, bool)
