"""Predictions of unlabelled splits on disk, and the files that leaderboards take."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.core.files import write_atomically
from limbeck.errors import OutputError
from limbeck.evaluation.submission import AnswerPrediction, Predictions, write_submission
from limbeck.evaluation.task import Task
from limbeck.experiments.choosing import select_score
from limbeck.experiments.results import Row

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
    write_atomically(path, json.dumps({split: _plain(found) for split, found in predictions.items()}))
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
