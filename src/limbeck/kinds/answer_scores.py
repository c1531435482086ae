"""Scores of answers to questions: exact match, F1, and the thresholds of SQuAD 2.0.

Where questions may have no answer, a prediction has *null odds*: the score of "no answer" less that of the best answer.
An answer whose null odds are above a *threshold* is emptied, which means that the model says "no answer". The *gold
answers* are those of the data set.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.answer_rules import (
    MLQA_LANGUAGES,
    Compare,
    compare_cmrc,
    compare_squad,
    compare_squad2,
    compare_tokens,
    normalise_answer,
    normalise_answer_of,
)
from limbeck.kinds.task import AnswerPrediction, Task

THRESHOLD = 0.0
"""Null odds above it mean no answer, where no better threshold has been searched."""
THRESHOLD_SUFFIX = "_threshold"
"""End of the names under which thresholds stand among scores, as in `best_f1_threshold` or `{class}_threshold`."""

_NO_PREDICTION = AnswerPrediction("", -math.inf)
"""Stands for the prediction of a question that has none.

Its null odds are below every threshold, so that it is never emptied, and it scores 0 as in `score_answers`. In the
search for the best threshold it is empty text: a question without an answer loses nothing by it.
"""


class Threshold(NamedTuple):
    """A threshold of null odds, above which an answer is emptied, and the mean score that it gives, 0 to 1."""

    score: float
    value: float


class AnswerScores(NamedTuple):
    """The scores of every question, in the order of the rows.

    Attributes:
        exact: 1 where the prediction is a gold answer, `[rows]`.
        f1: The F1 with the gold answer nearest to the prediction, `[rows]`, 0 to 1.
    """

    exact: NDArray[np.float64]
    f1: NDArray[np.float64]


def score_answers(predictions: Mapping[str, AnswerPrediction], rows: Sequence[LabelledRow], task: Task) -> AnswerScores:
    """Score the text of each prediction against the gold answers; a question without a prediction scores 0.

    The text counts even if the prediction says, by high null odds, that the question has no answer.

    Answers are compared by the rules that the task names. By default these are MLQA's rules for rows in one of its
    languages other than English, and SQuAD's rules for all other rows. A question without an answer has the empty text
    as its gold answer, as in SQuAD 2.0.

    Args:
        predictions: Row id to answer.
        rows: The rows with their gold answers.
        task: The task, which decides the rules.

    Raises:
        CorpusError: if a row of a task whose questions all have answers has none.
    """
    exact = np.zeros(len(rows))
    f1 = np.zeros(len(rows))
    for number, row in enumerate(rows):
        if row.id not in predictions:
            continue
        # A question may have several gold answers. The best one counts, for each of the two scores by itself.
        compare = _rules(task, row.language)
        text = predictions[row.id].text
        comparisons = [compare(text, gold) for gold in _gold(row, task)]
        exact[number] = max(is_same for is_same, _ in comparisons)
        f1[number] = max(answer_f1 for _, answer_f1 in comparisons)
    return AnswerScores(exact, f1)


def best_threshold(
    scores: NDArray[np.float64], odds: NDArray[np.float64], answerable: NDArray[np.bool_], empty: NDArray[np.bool_]
) -> Threshold:
    """Return the threshold of null odds with the best mean score.

    Null odds are the score that the model gives "no answer", less that of its answer. A question whose null odds are
    above the threshold counts as "no answer", which scores 1 if it has none and 0 if it has one. So the search begins
    with no answers at all, and then gives them one by one in ascending order of the null odds: an answer to an
    answerable question adds its score, an answer to another question loses the 1. The threshold is 0 where giving no
    answers is the best.

    Args:
        scores: The score of each predicted text, whatever its null odds, `[rows]`.
        odds: Null odds, `[rows]`.
        answerable: Whether the question has an answer, `[rows]`.
        empty: Whether the predicted text is empty, which means "no answer" too and loses nothing, `[rows]`.

    Source: the search in SQuAD 2.0's evaluation script (arXiv 1806.03822).
    """
    # The change of the summed scores as each answer is given.
    changes_if_unanswerable = np.where(empty, 0.0, -1.0)
    changes = np.where(answerable, scores, changes_if_unanswerable)

    # The summed scores without answers, and after each answer; the lowest null odds are the surest answer.
    sum_without_answers = float((~answerable).sum())
    surest_first = np.argsort(odds, kind="stable")
    sums = sum_without_answers + np.cumsum(changes[surest_first])
    best = int(sums.argmax())
    if sums[best] <= sum_without_answers:
        return Threshold(sum_without_answers / len(scores), THRESHOLD)
    return Threshold(float(sums[best]) / len(scores), float(odds[surest_first[best]]))


def answer_figures(
    predictions: Mapping[str, AnswerPrediction], rows: Sequence[LabelledRow], task: Task
) -> dict[str, float]:
    """Return exact match and F1, with those that SQuAD 2.0 reports too where questions may have no answer.

    Args:
        predictions: Row id to answer and null odds: the score of "no answer" less that of the answer.
        rows: The rows with their gold answers; a row without any is a question without an answer.
        task: Whether its questions may have no answer; an answer is then empty where its null odds are above 0.

    Returns:
        `exact_match` and `f1_answer`. Where questions may have no answer also `best_exact` and `best_f1` with their
        thresholds, and `has_answer_exact`, `has_answer_f1`, `no_answer_exact`, `no_answer_f1` for the parts that have
        rows. All are within 0 and 1, except the thresholds.
    """
    scores = score_answers(predictions, rows, task)
    if task.answerable_only:
        return {"exact_match": float(scores.exact.mean()), "f1_answer": float(scores.f1.mean())}

    predictions_of_rows = [predictions.get(row.id, _NO_PREDICTION) for row in rows]
    odds = np.array([prediction.null_odds for prediction in predictions_of_rows])
    empty = np.array([not prediction.text for prediction in predictions_of_rows])
    answerable = np.array([bool(row.answers) for row in rows])

    # An answer whose null odds are above the threshold is emptied, which is right where the question has none.
    is_emptied = odds > THRESHOLD
    exact = np.where(is_emptied, ~answerable, scores.exact)
    f1 = np.where(is_emptied, ~answerable, scores.f1)
    figures = {"exact_match": float(exact.mean()), "f1_answer": float(f1.mean())}
    for name, values in (("exact", scores.exact), ("f1", scores.f1)):
        threshold = best_threshold(values, odds, answerable, empty)
        figures[f"best_{name}"] = threshold.score
        figures[f"best_{name}{THRESHOLD_SUFFIX}"] = threshold.value

    # The same scores for the questions with and without an answer, by themselves.
    for part, is_in_part in (("has_answer", answerable), ("no_answer", ~answerable)):
        if is_in_part.any():
            figures[f"{part}_exact"] = float(exact[is_in_part].mean())
            figures[f"{part}_f1"] = float(f1[is_in_part].mean())
    return figures


def _rules(task: Task, language: str) -> Compare:
    """Return the comparison of a prediction with a gold answer, for rows in a language."""
    rules = task.answer_rules
    if rules is None:
        is_of_mlqa = language != "en" and language in MLQA_LANGUAGES
        rules = "mlqa" if is_of_mlqa else "squad"
    if rules == "mlqa":
        return partial(_compare_mlqa, language=language)
    if rules == "cmrc2018":
        return compare_cmrc
    return compare_squad if task.answerable_only else compare_squad2


def _compare_mlqa(prediction: str, gold: str, language: str) -> tuple[bool, float]:
    """Compare as MLQA does, by the rules of a language."""
    return compare_tokens(normalise_answer_of(prediction, language), normalise_answer_of(gold, language))


def _gold(row: LabelledRow, task: Task) -> Sequence[str]:
    """Return the gold answers of a question; the empty text where it has none.

    Raises:
        CorpusError: for a question without an answer in a task whose questions all have answers.
    """
    if not task.answerable_only:
        # As in SQuAD 2.0's script, gold answers of which nothing remains (such as "the") are skipped.
        return [answer for answer in row.answers if normalise_answer(answer)] or [""]
    if not row.answers:
        raise CorpusError(
            f"The question '{row.id}' of {task.title} has no correct answer to compare with, so its split cannot "
            "be scored."
        )
    return row.answers
