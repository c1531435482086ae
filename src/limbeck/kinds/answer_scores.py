"""Scores of answers to questions: exact match, F1, and the thresholds of SQuAD 2.0."""

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
    """Score the texts of the predictions, whatever their null odds; a question without a prediction scores 0.

    The rules are those that the task names; else MLQA's for rows in one of its languages other than English, and
    SQuAD's for the rest. Of a question without an answer the gold answer is the empty text, which SQuAD 2.0 introduced;
    its script also passes over gold answers of which nothing remains when they are normalised.

    Args:
        predictions: Row id to answer.
        rows: The rows with their gold answers.
        task: Decides the rules.

    Raises:
        CorpusError: if a row of a task whose questions all have answers has none.
    """
    exact = np.zeros(len(rows))
    f1 = np.zeros(len(rows))
    for number, row in enumerate(rows):
        if row.id not in predictions:
            continue
        # The nearest gold answer counts, for each of the two by itself.
        compare = _rules(task, row.language)
        text = predictions[row.id].text
        comparisons = [compare(text, gold) for gold in _gold(row, task)]
        exact[number] = max(is_same for is_same, _ in comparisons)
        f1[number] = max(answer_f1 for _, answer_f1 in comparisons)
    return AnswerScores(exact, f1)


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
    """Return the gold answers of a question; of one that has none, the empty text."""
    if not task.answerable_only:
        return [answer for answer in row.answers if normalise_answer(answer)] or [""]
    if not row.answers:
        raise CorpusError(f"The question '{row.id}' of {task.title} has no gold answer, so its split cannot be scored.")
    return row.answers


THRESHOLD = 0.0
"""Null odds above it mean no answer, where no better threshold has been searched."""
THRESHOLDS = "_threshold"
"""End of the names of thresholds among the figures of answers."""

_NO_PREDICTION = AnswerPrediction("", -math.inf)


def best_threshold(
    scores: NDArray[np.float64], odds: NDArray[np.float64], answerable: NDArray[np.bool_], empty: NDArray[np.bool_]
) -> Threshold:
    """Return the threshold with the best mean score.

    Questions are answered one by one, the surest first: an answer to a question that has one adds its score, an
    answer to one that has none takes 1 away. The threshold is 0 where answering nothing is the best.

    Args:
        scores: The scores of the answers that are never empty, `[rows]`.
        odds: Null odds, `[rows]`.
        answerable: Whether the question has an answer, `[rows]`.
        empty: Whether the predicted text is empty even so, `[rows]`.

    Source: the search in SQuAD 2.0's evaluation script (arXiv 1806.03822).
    """
    # What each answer adds to the sum of all scores, once it is given.
    of_unanswerable = np.where(empty, 0.0, -1.0)
    changes = np.where(answerable, scores, of_unanswerable)

    # The sum where nothing is answered, and after each answer, the surest first.
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
        predictions: Row id to answer and null odds.
        rows: The rows with their gold answers; a row without any is a question without an answer.
        task: Whether its questions may have no answer; an answer is then empty where its null odds are above 0.

    Returns:
        `exact_match` and `f1_answer`; of such a task also `best_exact`, `best_f1` and their thresholds, and
        `has_answer_exact`, `has_answer_f1`, `no_answer_exact`, `no_answer_f1`, the parts that have rows. All within 0
        and 1, save the thresholds.
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
        figures[f"best_{name}{THRESHOLDS}"] = threshold.value
    for part, is_in_part in (("has_answer", answerable), ("no_answer", ~answerable)):
        if is_in_part.any():
            figures[f"{part}_exact"] = float(exact[is_in_part].mean())
            figures[f"{part}_f1"] = float(f1[is_in_part].mean())
    return figures
