"""Scores of the predictions of splits, with their certainty."""

from collections.abc import Mapping

from limbeck.evaluation.evaluators.evaluator import CellResult
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.kinds.scoring import chance_of, intervals_of, only_answer, score
from limbeck.kinds.task import Predictions, Task


def score_splits(
    tasks: Mapping[str, Task], prepared: PreparedTask, predictions: Mapping[str, Predictions]
) -> CellResult:
    """Score the predictions of splits, with the certainty of the scores.

    Args:
        tasks: The task, by split: splits may be scored with different thresholds of classes.
        prepared: The task with its rows.
        predictions: The predictions of the rows, by split.

    Returns:
        A result with scores, intervals, scores at chance, and the one answer that a model may give to all rows of a
        split.
    """
    scores = {}
    intervals = {}
    only_answers = {}
    chance = {}
    for split, predicted in predictions.items():
        task = tasks[split]
        rows = prepared.rows[split]
        scores[split] = score(task, split, rows, predicted)
        interval_of_metric = intervals_of(scores[split], task, rows, predicted)
        if interval_of_metric:
            intervals[split] = interval_of_metric
        chance_of_metric = chance_of(task, rows)
        if chance_of_metric:
            chance[split] = chance_of_metric
        answer = only_answer(task, predicted)
        if answer is not None:
            only_answers[split] = answer
    return CellResult(scores, intervals=intervals or None, only_answer=only_answers or None, chance=chance or None)
