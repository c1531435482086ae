"""Submissions: files with the predictions of unlabelled splits, in the formats that leaderboards ask for.

A benchmark such as GLUE keeps the labels of its test splits to itself, and scores the file that one uploads.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from limbeck.core import files
from limbeck.core.studies import EvaluationCell
from limbeck.evaluation.results.choices import best_run
from limbeck.evaluation.results.predictions import read_predictions
from limbeck.kinds.answer_scores import THRESHOLD_SUFFIX
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import AnswerPrediction, Predictions, Task

SUBMISSIONS = "submissions"
"""The folder of an evaluation's leaderboard files."""


def folder_names(models: Iterable[str]) -> dict[str, str]:
    """Return the name of the folder of each model's files, within `SUBMISSIONS`.

    Args:
        models: The models, as the user named them.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for model in models:
        # "org/model" becomes "org-model": a folder has no slashes in its name, nor what else some disk refuses.
        plain_name = re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model"
        name = plain_name
        number = 1
        # "a/b" and "a-b" would have the same folder, and on some disks "A" and "a". Later models get a number.
        while name.lower() in taken:
            number += 1
            name = f"{plain_name}-{number}"
        taken.add(name.lower())
        names[model] = name
    return names


def write_submissions(
    folder: Path, folder_name: str, task: Task, cells: Sequence[EvaluationCell], metric: str
) -> list[Path]:
    """Write the leaderboard files of a model on a task, with the predictions of one of its runs.

    Several runs may have the chosen settings, one for each seed. The files are those of the run with the best score on
    the labelled split by which settings are chosen (the select split).

    Args:
        folder: The folder of the evaluation, in which the run's predictions were saved.
        folder_name: Name of the folder of the model's files, see `folder_names`.
        task: The task.
        cells: The finished runs with the chosen settings.
        metric: The metric of the score that decides.

    Returns:
        The paths of the files; an empty list where no run has predictions.

    Raises:
        OutputError: if the saved predictions are missing or damaged, or a file cannot be written.
    """
    # A cell names the file of its predictions only if the task has splits for leaderboards.
    cells_with_predictions = [cell for cell in cells if cell.predictions]
    if not cells_with_predictions:
        return []
    best = best_run(cells_with_predictions, metric)
    # Where a row may have several classes, its probabilities become classes by the thresholds that the run chose.
    task_with_thresholds = replace(task, thresholds=_thresholds_of(best, task))
    folder_of_model = folder / SUBMISSIONS / folder_name
    paths = []
    for split, predictions in read_predictions(folder / str(best.predictions)).items():
        if split in task.predicted:
            paths.append(write_submission(task_with_thresholds, split, predictions, folder_of_model))
    return paths


def _thresholds_of(cell: EvaluationCell, task: Task) -> tuple[float, ...]:
    """Return the threshold that a cell chose for each class, in the order of the classes; empty where it chose none."""
    if cell.thresholds is not None:
        return tuple(cell.thresholds)
    # Results of earlier versions have no field for them: there they stand among the scores, as `{class}_threshold`.
    names = [f"{label}{THRESHOLD_SUFFIX}" for label in task.labels]
    for scores in cell.scores.values():
        has_thresholds = all(name in scores for name in names)
        if has_thresholds:
            return tuple(float(scores[name] or 0) for name in names)
    return ()


def write_submission(task: Task, split: str, predictions: Predictions, folder: Path, *, threshold: float = 0.0) -> Path:
    """Write the predictions of a split to a file that a leaderboard takes.

    The task may name the file. Otherwise it is `{task}-{split}.json` for answers and `{task}-{split}.tsv` for the rest.

    - GLUE takes a `.tsv` with the header `index`, `prediction` and a line for each row: the names or numbers of its
      classes (with `|` between several), or its value.
    - CLUE takes a `.json` with an object on each line: the number of the row and the name of its class.
    - SQuAD takes a `.json` with one object of row id to the text of the answer.

    Args:
        task: The task of the split.
        split: Name of the split.
        predictions: The predictions of all rows of the split, in order; for questions, row id to answer.
        folder: Folder of the file; it is made if it is not there.
        threshold: Where questions may have no answer, answers whose null odds are above the threshold are written as
            empty texts. The null odds are the score of "no answer" less that of the best answer.

    Returns:
        The path of the file.

    Raises:
        OutputError: if it cannot be written.

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
        # Where every question has an answer, no odds are high enough to empty one.
        most_null_odds = math.inf if task.answerable_only else threshold
        text = _written_answers(predictions, most_null_odds)
    else:
        kind = KINDS[task.kind]
        values = [kind.submitted(prediction, task, submission) for prediction in predictions]
        text = _json_lines(values) if path.suffix == ".json" else _table(values)
    with files.writing(path):
        files.atomic_text(path, text)
    return path


def _written_answers(predictions: Mapping[str, AnswerPrediction], threshold: float) -> str:
    """Return one JSON object of id to text; answers whose null odds are above the threshold are empty."""
    texts = {}
    for row_id, answer in predictions.items():
        texts[row_id] = "" if answer.null_odds > threshold else answer.text
    return json.dumps(texts, ensure_ascii=False)


def _json_lines(values: Sequence[str]) -> str:
    """Return the text of CLUE's files: on each line an object with the number of a row and its class."""
    lines = [json.dumps({"id": number, "label": value}, ensure_ascii=False) for number, value in enumerate(values)]
    return "".join(f"{line}\n" for line in lines)


def _table(values: Sequence[str]) -> str:
    """Return the text of GLUE's files: a table with the number of each row and its prediction."""
    rows = [f"{number}\t{value}\n" for number, value in enumerate(values)]
    return "index\tprediction\n" + "".join(rows)
