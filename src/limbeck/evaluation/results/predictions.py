"""Predictions of unlabelled splits, saved in the evaluation's folder and read again for leaderboards' files."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text, writing
from limbeck.core.paths import PREDICTIONS
from limbeck.errors import OutputError
from limbeck.kinds.task import AnswerPrediction, Predictions


def save_predictions(folder: Path, identity: str, predictions: Mapping[str, Predictions]) -> str | None:
    """Write a cell's predictions of unlabelled splits.

    Args:
        folder: The folder of the evaluation.
        identity: Identity of the cell, which names the file.
        predictions: The predictions of each split; empty where the task has no unlabelled splits.

    Returns:
        The path of the file, relative to the folder; None without predictions.

    Raises:
        OutputError: if it cannot be written.
    """
    if not predictions:
        return None
    path = folder / PREDICTIONS / f"{identity}.json"
    plain_values = {split: _to_json(predictions_of_split) for split, predictions_of_split in predictions.items()}
    with writing(path):
        atomic_text(path, json.dumps(plain_values))
    return str(path.relative_to(folder))


def read_predictions(path: Path) -> dict[str, Predictions]:
    """Read the predictions that `save_predictions` wrote, by split.

    Raises:
        OutputError: if the file is missing or damaged.
    """
    try:
        values_by_split = json.loads(path.read_text(encoding="utf-8"))
        return {split: _from_json(values) for split, values in values_by_split.items()}
    except FileNotFoundError:
        raise OutputError(f"'{path}' is missing.") from None
    except (OSError, ValueError, TypeError, AttributeError):
        raise OutputError(f"'{path}' is damaged.") from None


def _to_json(predictions: Predictions) -> Any:
    """Return predictions as plain values for JSON, which has no infinity: infinite null odds of answers become null."""
    if not isinstance(predictions, Mapping):
        return list(predictions)
    answers = {}
    for row_id, answer in predictions.items():
        odds = answer.null_odds if math.isfinite(answer.null_odds) else None
        answers[row_id] = [answer.text, odds]
    return answers


def _from_json(values: Any) -> Predictions:
    """Return the predictions of a split from their plain values."""
    if isinstance(values, list):
        return values
    answers = {}
    for row_id, (text, odds) in values.items():
        null_odds = math.inf if odds is None else odds
        answers[row_id] = AnswerPrediction(text, null_odds)
    return answers
