"""`results.jsonl`: a row per cell, on disk before the next cell begins."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.core.files import atomic_text
from limbeck.errors import OutputError
from limbeck.evaluation.protocols import FineTuning
from limbeck.evaluation.submission import AnswerPrediction, Predictions, write_submission
from limbeck.evaluation.task import Task

Row: TypeAlias = dict[str, Any]
RESULTS = "results.jsonl"
FINISHED, FAILED = "finished", "failed"


class ResultsFile:
    """The rows of all cells that ever ran in a folder.

    Args:
        folder: Of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS

    def read(self) -> list[Row]:
        """Return the rows, in order; a line that was not written to its end is passed over.

        Raises:
            OutputError: if the file cannot be read.
        """
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be read: {error.strerror}.") from None
        rows = (_parse(line) for line in lines)
        return [row for row in rows if row is not None]

    def finished(self) -> dict[str, Row]:
        """Return the finished cells by their identity."""
        return {row["id"]: row for row in self.read() if row.get("status") == FINISHED}

    def append(self, row: Row) -> None:
        """Write a row and wait until it is on disk.

        Raises:
            OutputError: if it cannot be written.
        """
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        try:
            with self._path.open("ab") as file:
                # A line that an earlier process left unfinished must not swallow this one.
                torn = file.tell() > 0 and not self._ends_with_newline()
                file.write((b"\n" if torn else b"") + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be written: {error.strerror}.") from None

    def _ends_with_newline(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _parse(line: bytes) -> Row | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("id"), str) else None


# Mean and sample deviation of the runs of a grid point, in percent.


@dataclass(frozen=True)
class Runs:
    """A figure over runs that differ in their seed.

    Attributes:
        values: Of each run, in percent.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Their sample deviation (n - 1); None of a single run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def in_percent(values: Sequence[float]) -> Runs:
    """Return runs of values between -1 and 1."""
    return Runs(tuple(100 * value for value in values))


def average(parts: Sequence[Runs]) -> Runs:
    """Return the average over tasks: run by run where all have the same number of runs, else of their means.

    Args:
        parts: At least one.
    """
    if len({len(part.values) for part in parts}) == 1:
        return Runs(tuple(statistics.fmean(run) for run in zip(*(part.values for part in parts), strict=True)))
    return Runs((statistics.fmean(part.mean for part in parts),))


# Notes on many splits, gathered: a line for each kind of note.


_SHOWN_SUBJECTS = 3
_NUMBER = re.compile(r"\d[\d,.]*")


def gather_notes(notes: Iterable[str]) -> list[str]:
    """Gather notes that say the same of several splits: the first as it is, then what it is likewise of.

    Args:
        notes: `what it is of: what there is to say` each. Two are of a kind if what they say differs in its numbers
            only, and in what follows a further colon or stands in brackets (names and examples).

    Returns:
        A line a kind, in the order of their first notes.
    """
    kinds: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        kinds.setdefault(_kind(note), []).append(note)
    return [first + _likewise(others) for first, *others in kinds.values()]


def _kind(note: str) -> str:
    said = note.partition(": ")[2] or note
    return _NUMBER.sub("#", re.split(r": | \(", said, maxsplit=1)[0])


def _likewise(notes: list[str]) -> str:
    if not notes:
        return ""
    subjects = list(dict.fromkeys(note.partition(": ")[0] for note in notes))
    shown = ", ".join(subjects[:_SHOWN_SUBJECTS])
    left = len(subjects) - _SHOWN_SUBJECTS
    return f"; likewise {shown}" + (f" and {left} more" if left > 0 else "")


# Choosing a grid point as the papers do, and the scores of its runs.


@dataclass(frozen=True)
class Choice:
    """The grid point that stands for a model on a task.

    Attributes:
        settings: Of the point.
        rows: Its finished runs, by seed.
        wanted: How many runs there should be.
        points: How many points have a finished run.
    """

    settings: Mapping[str, Any]
    rows: Sequence[Row]
    wanted: int
    points: int


def choose(rows: Sequence[Row], task: Task, settings: FineTuning, runs: int) -> Choice | None:
    """Choose the grid point whose runs have the highest mean on the select split, or the one best run.

    Points that lack runs are passed over while another has all of its runs. Of equals, the first in the grid's order.

    Args:
        rows: Finished cells of one model on the task, in the order of the plan.
        task: The task.
        settings: Whether the mean over seeds decides, and which metric.
        runs: How many each point should have.

    Returns:
        None without any row.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr(sorted(row["settings"].items())), []).append(row)
    if not groups:
        return None
    most = max(map(len, groups.values()))
    whole = [group for group in groups.values() if len(group) == most]
    metric = settings.metric or task.metrics[0]
    if settings.pick == "best":
        best = max(rows, key=lambda row: select_score(row, metric))
        return Choice(best["settings"], [best], 1, len(groups))
    group = max(whole, key=lambda group: statistics.fmean(select_score(row, metric) for row in group))
    return Choice(group[0]["settings"], sorted(group, key=lambda row: row["seed"]), runs, len(groups))


def select_score(row: Row, metric: str) -> float:
    """Return what a cell is chosen by: the metric on its select split; 0 where it scored nothing."""
    scores: Mapping[str, Mapping[str, float]] = row["scores"]
    if not scores:
        return 0.0
    found = scores.get(row["select"]) or next(iter(scores.values()))
    value = found[metric] if metric in found else next(iter(found.values()))
    return -1.0 if value is None else value


# Predictions of unlabelled splits on disk, and the files that leaderboards take.


PREDICTIONS = "predictions"
SUBMISSIONS = "submissions"


def save_predictions(folder: Path, identity: str, predictions: Mapping[str, Predictions]) -> str | None:
    """Write a cell's predictions of unlabelled splits.

    Args:
        folder: Of the evaluation.
        identity: Of the cell.
        predictions: By split.

    Returns:
        The file, relative to the folder; None without predictions.
    """
    if not predictions:
        return None
    path = folder / PREDICTIONS / f"{identity}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_text(path, json.dumps({split: _plain(found) for split, found in predictions.items()}))
    return str(path.relative_to(folder))


def write_submissions(folder: Path, model: str, task: Task, rows: Sequence[Row], metric: str) -> list[Path]:
    """Write the leaderboard files of a model on a task, by the best run of its chosen grid point.

    Args:
        folder: Of the evaluation.
        model: As the user named it; its files go to a folder of its own.
        task: The task.
        rows: The finished runs of the chosen point.
        metric: By which the best is chosen on the select split.

    Returns:
        The files; none where nothing was predicted.

    Raises:
        OutputError: if the saved predictions are missing or damaged.
    """
    predicted = [row for row in rows if row.get("predictions")]
    if not predicted:
        return []
    best = max(predicted, key=lambda row: select_score(row, metric))
    saved = _read(folder / best["predictions"])
    home = folder / SUBMISSIONS / (re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model")
    return [write_submission(task, split, found, home) for split, found in saved.items() if split in task.predicted]


def _read(path: Path) -> dict[str, Predictions]:
    try:
        return {split: _restored(found) for split, found in json.loads(path.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        raise OutputError(f"'{path}' is missing.") from None
    except (OSError, ValueError, TypeError, AttributeError):
        raise OutputError(f"'{path}' is damaged.") from None


def _plain(predictions: Predictions) -> Any:
    if not isinstance(predictions, Mapping):
        return list(predictions)
    return {
        key: [found.text, found.null_odds if math.isfinite(found.null_odds) else None]
        for key, found in predictions.items()
    }


def _restored(saved: Any) -> Predictions:
    if isinstance(saved, list):
        return saved
    return {key: AnswerPrediction(text, math.inf if odds is None else odds) for key, (text, odds) in saved.items()}
