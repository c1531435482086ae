"""Predictions of unlabelled splits, in the files that leaderboards take."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.core.files import atomic_text
from limbeck.errors import OutputError
from limbeck.evaluation.tasks import Submission, Task


@dataclass(frozen=True)
class AnswerPrediction:
    """The answer to one question.

    Attributes:
        text: The best answer that is not empty.
        null_odds: Score of no answer less the score of `text`; where it is above a threshold the answer is empty.
    """

    text: str
    null_odds: float = 0.0


PREDICTIONS = "predictions"
"""The folder of an evaluation's saved predictions."""

Predictions: TypeAlias = Sequence[int] | Sequence[float] | Mapping[str, AnswerPrediction]
"""A class number or a value per row, in their order; or, of questions, an answer per row id."""


def write_submission(task: Task, split: str, predictions: Predictions, folder: Path, *, threshold: float = 0.0) -> Path:
    """Write the predictions of a split, in the file that the task names for it.

    A `.tsv` has the header `index`, `prediction` and a row per prediction, as GLUE's leaderboard takes it: class names
    or numbers, or values, within the leaderboard's bounds. A `.json` of classes has an object a line with the number of
    the row and the class name, in the order of the test file, as CLUE's takes it; of answers it is one object of id to
    text, as SQuAD's script reads it. A split for which the task names no file goes to `{task}-{split}.tsv` with class
    names or values, or to `{task}-{split}.json` with answers.

    Args:
        task: Whose split it is.
        split: Its name.
        predictions: For every row of the split, in order; answers by row id.
        folder: Made if it is not there.
        threshold: An answer whose null odds are above it is written as empty, where questions may have none.

    Returns:
        The file.

    Source: GLUE's page on submissions (gluebenchmark.com/faq); CLUE's notes on submissions of 4 September 2021, which
    name files `<task>_predict.json` and say that of a line only the label is read; OCNLI's file name is that of the
    CLUE baselines in PaddleNLP; SQuAD's evaluation script.
    """
    wanted = task.submissions.get(split)
    suffix = "json" if isinstance(predictions, Mapping) else "tsv"
    path = folder / (f"{task.name}-{split}.{suffix}" if wanted is None else wanted.file)
    if isinstance(predictions, Mapping):
        most = math.inf if task.answerable_only else threshold
        texts = {key: "" if found.null_odds > most else found.text for key, found in predictions.items()}
        text = json.dumps(texts, ensure_ascii=False)
    else:
        values = [_written(task, prediction, wanted) for prediction in predictions]
        if path.suffix == ".json":
            rows = ({"id": number, "label": value} for number, value in enumerate(values))
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        else:
            text = "index\tprediction\n" + "".join(f"{number}\t{value}\n" for number, value in enumerate(values))
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _written(task: Task, prediction: int | float, wanted: Submission | None) -> str:
    if task.kind == "classification":
        return str(int(prediction)) if wanted and wanted.classes == "numbers" else task.labels[int(prediction)]
    least, most = (wanted and wanted.range) or (-math.inf, math.inf)
    return f"{min(max(float(prediction), least), most):.3f}"


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
