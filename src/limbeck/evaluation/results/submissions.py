"""Submissions: the files of predictions that leaderboards take."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from limbeck.core.studies import EvaluationCell
from limbeck.evaluation.results.choices import best_run
from limbeck.evaluation.results.predictions import read_predictions
from limbeck.kinds.answer_scores import THRESHOLDS
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import AnswerPrediction, Predictions, Task

SUBMISSIONS = "submissions"
"""The folder of an evaluation's leaderboard files."""


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
    task_with_thresholds = replace(task, thresholds=_thresholds_of(best, task))
    folder_name = re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model"
    folder_of_model = folder / SUBMISSIONS / folder_name
    files = []
    for split, predictions in read_predictions(folder / str(best.predictions)).items():
        if split in task.predicted:
            files.append(write_submission(task_with_thresholds, split, predictions, folder_of_model))
    return files


def _thresholds_of(cell: EvaluationCell, task: Task) -> tuple[float, ...]:
    """Return the thresholds that a cell chose; empty where it chose none."""
    if cell.thresholds is not None:
        return tuple(cell.thresholds)
    # Rows of earlier versions have them among the scores alone.
    names = [f"{label}{THRESHOLDS}" for label in task.labels]
    for scores in cell.scores.values():
        if all(name in scores for name in names):
            return tuple(float(scores[name] or 0) for name in names)
    return ()


def write_submission(task: Task, split: str, predictions: Predictions, folder: Path, *, threshold: float = 0.0) -> Path:
    """Write the predictions of a split, in the file that the task names for it.

    A `.tsv` has the header `index`, `prediction` and a row per prediction, as GLUE's leaderboard takes it: class names
    or numbers (several between `|`), or values, within the leaderboard's bounds. A `.json` of classes has an object a
    line with the number of the row and the class name, in the order of the test file, as CLUE's takes it. A `.json` of
    answers is one object of id to text, as SQuAD's script reads it. A split for which the task names no file goes to
    `{task}-{split}.tsv` with class names or values, or to `{task}-{split}.json` with answers.

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
    submission = task.submissions.get(split)
    if submission is not None:
        path = folder / submission.file
    else:
        suffix = "json" if isinstance(predictions, Mapping) else "tsv"
        path = folder / f"{task.name}-{split}.{suffix}"

    if isinstance(predictions, Mapping):
        # Where every question has an answer, none is left empty.
        most_null_odds = math.inf if task.answerable_only else threshold
        text = _written_answers(predictions, most_null_odds)
    else:
        kind = KINDS[task.kind]
        values = [kind.submitted(prediction, task, submission) for prediction in predictions]
        text = _json_lines(values) if path.suffix == ".json" else _table(values)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _written_answers(predictions: Mapping[str, AnswerPrediction], threshold: float) -> str:
    """Return one JSON object of id to text; answers whose null odds are above the threshold are empty."""
    texts = {}
    for row_id, answer in predictions.items():
        texts[row_id] = "" if answer.null_odds > threshold else answer.text
    return json.dumps(texts, ensure_ascii=False)


def _json_lines(values: Sequence[str]) -> str:
    """Return an object a line, with the number of the row and its class."""
    lines = [json.dumps({"id": number, "label": value}, ensure_ascii=False) for number, value in enumerate(values)]
    return "".join(f"{line}\n" for line in lines)


def _table(values: Sequence[str]) -> str:
    """Return a table with the number of each row and its prediction."""
    rows = [f"{number}\t{value}\n" for number, value in enumerate(values)]
    return "index\tprediction\n" + "".join(rows)
