"""Files of predictions that leaderboards take."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.kinds import KINDS
from limbeck.core.studies import EvaluationCell
from limbeck.evaluation.grid_summary import best_run
from limbeck.evaluation.metrics import THRESHOLDS, given_classes
from limbeck.evaluation.predictions import read_predictions
from limbeck.evaluation.tasks import Predictions, Submission, Task

SUBMISSIONS = "submissions"


def write_submissions(folder: Path, model: str, task: Task, cells: Sequence[EvaluationCell], metric: str) -> list[Path]:
    """Write the leaderboard files of a model on a task, by the best run of its chosen grid point.

    Args:
        folder: Of the evaluation.
        model: As the user named it; its files have their own folder.
        task: The task.
        cells: The finished runs of the chosen point.
        metric: By which the best is chosen on the select split.

    Returns:
        The files; none where nothing was predicted.

    Raises:
        OutputError: if the saved predictions are missing or damaged.
    """
    predicted = [cell for cell in cells if cell.predictions]
    if not predicted:
        return []
    best = best_run(predicted, metric)
    task = replace(task, thresholds=_thresholds_of(best, task))
    saved = read_predictions(folder / str(best.predictions))
    home = folder / SUBMISSIONS / (re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model")
    return [write_submission(task, split, found, home) for split, found in saved.items() if split in task.predicted]


def _thresholds_of(cell: EvaluationCell, task: Task) -> tuple[float, ...]:
    """Return the thresholds that a cell chose; empty where it chose none."""
    if cell.thresholds is not None:
        return tuple(cell.thresholds)
    # Rows of earlier versions have them among the scores alone.
    names = [f"{label}{THRESHOLDS}" for label in task.labels]
    chosen = next((scores for scores in cell.scores.values() if {*names} <= {*scores}), None)
    return () if chosen is None else tuple(float(chosen[name] or 0) for name in names)


def write_submission(task: Task, split: str, predictions: Predictions, folder: Path, *, threshold: float = 0.0) -> Path:
    """Write the predictions of a split, in the file that the task names for it.

    A `.tsv` has the header `index`, `prediction` and a row per prediction, as GLUE's leaderboard takes it: class names
    or numbers (several between `|`), or values, within the leaderboard's bounds. A `.json` of classes has an object a
    line with the number of the row and the class name, in the order of the test file, as CLUE's takes it; of answers it
    is one object of id to
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


def _written(task: Task, prediction: Any, wanted: Submission | None) -> str:
    if KINDS[task.kind].has_several:
        given = np.flatnonzero(given_classes(prediction, task)).tolist()
        return "|".join(_written_class(task, number, wanted) for number in given)
    if KINDS[task.kind].of_words:
        return " ".join(_written_class(task, number, wanted) for number in prediction)
    if KINDS[task.kind].has_classes:
        return _written_class(task, int(prediction), wanted)
    least, most = (wanted and wanted.range) or (-math.inf, math.inf)
    return f"{min(max(float(prediction), least), most):.3f}"


def _written_class(task: Task, number: int, wanted: Submission | None) -> str:
    return str(number) if wanted and wanted.classes == "numbers" else task.labels[number]
