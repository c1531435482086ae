"""Saved predictions of unlabelled splits, in the evaluation's folder."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text
from limbeck.core.paths import PREDICTIONS
from limbeck.errors import OutputError
from limbeck.evaluation.tasks import AnswerPrediction, Predictions


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


def read_predictions(path: Path) -> dict[str, Predictions]:
    """Read what `save_predictions` wrote, by split.

    Raises:
        OutputError: if the file is missing or damaged.
    """
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
