"""Scores of answers to questions: exact match, F1, and the thresholds of SQuAD 2.0."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.labelled import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.answer_rules import (
    MLQA_LANGUAGES,
    Compare,
    _compare_tokens,
    compare_cmrc,
    compare_squad,
    compare_squad2,
    normalise_answer,
    normalise_answer_of,
)
from limbeck.kinds.task import AnswerPrediction, Task


class AnswerScores(NamedTuple):
    """The scores of every question, in the order of the rows.

    Attributes:
        exact: 1 where the prediction is a gold answer, `[rows]`.
        f1: Of the gold answer nearest to the prediction, `[rows]`, 0 to 1.
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
        rows: With their gold answers.
        task: Decides the rules.

    Raises:
        CorpusError: if a row of a task whose questions all have answers has none.
    """
    exact, f1 = np.zeros(len(rows)), np.zeros(len(rows))
    for number, row in enumerate(rows):
        if row.id not in predictions:
            continue
        compare = _rules(task, row.language)
        text = predictions[row.id].text
        scores = [compare(text, gold) for gold in _gold(row, task)]
        exact[number] = max(same for same, _ in scores)
        f1[number] = max(overlap for _, overlap in scores)
    return AnswerScores(exact, f1)


def _rules(task: Task, language: str) -> Compare:
    rules = task.answer_rules or ("mlqa" if language != "en" and language in MLQA_LANGUAGES else "squad")
    if rules == "mlqa":
        return lambda *texts: _compare_tokens(*(normalise_answer_of(text, language) for text in texts))
    if rules == "cmrc2018":
        return compare_cmrc
    return compare_squad if task.answerable_only else compare_squad2


def _gold(row: LabelledRow, task: Task) -> Sequence[str]:
    if not task.answerable_only:
        return [answer for answer in row.answers if normalise_answer(answer)] or [""]
    if not row.answers:
        raise CorpusError(f"The question '{row.id}' of {task.title} has no gold answer, so its split cannot be scored.")
    return row.answers


THRESHOLD = 0.0
"""Null odds above it mean no answer, where no better threshold has been searched."""
THRESHOLDS = "_threshold"
"""End of the names of thresholds among the figures of answers."""


def best_threshold(
    scores: NDArray[np.float64], odds: NDArray[np.float64], answerable: NDArray[np.bool_], empty: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the best mean score that a threshold can give, and the threshold.

    Questions are answered one by one, the surest first: an answer to a question that has one adds its score, an
    answer to one that has none takes 1 away. The threshold is 0 where answering nothing is the best.

    Args:
        scores: Of the answers that are never empty, `[rows]`.
        odds: Null odds, `[rows]`.
        answerable: Whether the question has an answer, `[rows]`.
        empty: Whether the predicted text is empty even so, `[rows]`.

    Source: the search in SQuAD 2.0's evaluation script (arXiv 1806.03822).
    """
    order = np.argsort(odds, kind="stable")
    changes = np.where(answerable, scores, np.where(empty, 0.0, -1.0))[order]
    nothing = float((~answerable).sum())
    reached = nothing + np.cumsum(changes)
    best = int(reached.argmax())
    if reached[best] <= nothing:
        return nothing / len(scores), THRESHOLD
    return float(reached[best]) / len(scores), float(odds[order[best]])


def answer_figures(
    predictions: Mapping[str, AnswerPrediction], rows: Sequence[LabelledRow], task: Task
) -> dict[str, float]:
    """Return exact match and F1, with those that SQuAD 2.0 reports too where questions may have no answer.

    Args:
        predictions: Row id to answer and null odds.
        rows: With their gold answers; a row without any is a question without an answer.
        task: Whether its questions may have no answer; an answer is then empty where its null odds are above 0.

    Returns:
        `exact_match` and `f1_answer`; of such a task also `best_exact`, `best_f1` and their thresholds, and
        `has_answer_exact`, `has_answer_f1`, `no_answer_exact`, `no_answer_f1`, the parts that have rows. All within 0
        and 1, save the thresholds.
    """
    scores = score_answers(predictions, rows, task)
    odds = np.array([predictions[row.id].null_odds if row.id in predictions else -np.inf for row in rows])
    answerable = np.array([bool(row.answers) for row in rows])
    emptied = (odds > THRESHOLD) & (not task.answerable_only)
    at_zero = AnswerScores(*(np.where(emptied, ~answerable, values) for values in scores))
    found = {"exact_match": float(at_zero.exact.mean()), "f1_answer": float(at_zero.f1.mean())}
    if task.answerable_only:
        return found
    empty = np.array([not (row.id in predictions and predictions[row.id].text) for row in rows])
    for name, values in scores._asdict().items():
        found[f"best_{name}"], found[f"best_{name}{THRESHOLDS}"] = best_threshold(values, odds, answerable, empty)
    for part, chosen in (("has_answer", answerable), ("no_answer", ~answerable)):
        if chosen.any():
            found |= {f"{part}_{name}": float(values[chosen].mean()) for name, values in at_zero._asdict().items()}
    return found
