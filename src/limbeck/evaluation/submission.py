"""Predictions of unlabelled splits, in the files that leaderboards take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.core.files import atomic_text
from limbeck.errors import OutputError
from limbeck.evaluation.built_in_tasks import GLUE_SUBMISSIONS
from limbeck.evaluation.task import Task

# What a model predicts for the rows of a task.


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


CLUE_SUBMISSIONS: dict[tuple[str, str], str] = {
    ("cmnli", "test"): "cmnli_predict.json",
    ("ocnli", "test"): "ocnli_50k_predict.json",
    ("csl", "test"): "csl_predict.json",
    ("cmrc2018", "test"): "cmrc2018_predict.json",
}
"""Task and split to the file that CLUE's leaderboard asks for."""

# The leaderboard refuses values outside of STS-B's scale.
_STSB_RANGE = (0.0, 5.0)


def write_submission(task: Task, split: str, predictions: Predictions, folder: Path, *, threshold: float = 0.0) -> Path:
    """Write the predictions of a split.

    GLUE's splits go to the files that its leaderboard names (`MNLI-m.tsv`, `AX.tsv`, …), a header `index`, `prediction`
    and a row per prediction: class names for MNLI, QNLI, RTE and AX, class numbers for the others, values within 0 and
    5 for STS-B. CLUE's go to `cmnli_predict.json` and the like: a JSON object a line, with the number of the row and
    the class name, in the order of the test file; for CMRC 2018 one object of id to text. Answers of other tasks go to
    such an object too, `{task}-{split}.json`, as SQuAD's own script reads it, and every other split to
    `{task}-{split}.tsv` with class names or values.

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
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(predictions, Mapping):
        path = folder / CLUE_SUBMISSIONS.get((task.name, split), f"{task.name}-{split}.json")
        answers = {key: answer_text(found, task, threshold) for key, found in predictions.items()}
        path.write_text(json.dumps(answers, ensure_ascii=False), encoding="utf-8")
        return path
    if (task.name, split) in CLUE_SUBMISSIONS:
        path = folder / CLUE_SUBMISSIONS[task.name, split]
        rows = [{"id": number, "label": _written(task, found, named=True)} for number, found in enumerate(predictions)]
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path
    file, named = GLUE_SUBMISSIONS.get((task.name, split), (f"{task.name}-{split}.tsv", True))
    lines = ["index\tprediction"]
    for number, prediction in enumerate(predictions):
        lines.append(f"{number}\t{_written(task, prediction, named=named)}")
    path = folder / file
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def answer_text(found: AnswerPrediction, task: Task, threshold: float) -> str:
    """Return the answer, or the empty text where there is none.

    Args:
        found: The prediction.
        task: Whether its questions may have no answer.
        threshold: Null odds above it mean no answer.
    """
    return "" if not task.answerable_only and found.null_odds > threshold else found.text


def _written(task: Task, prediction: int | float, *, named: bool) -> str:
    if task.kind == "classification":
        return task.labels[int(prediction)] if named else str(int(prediction))
    if task.name == "stsb":
        prediction = min(max(float(prediction), _STSB_RANGE[0]), _STSB_RANGE[1])
    return f"{float(prediction):.3f}"


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
