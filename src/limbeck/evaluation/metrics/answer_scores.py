"""Exact match and F1 of answers, as the scripts of SQuAD, MLQA and CMRC 2018 count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.errors import CorpusError
from limbeck.evaluation.metrics.chinese_words import longest_common_run, mixed_segments, remove_punctuation
from limbeck.evaluation.metrics.normalising import MLQA_LANGUAGES, normalise_answer, normalise_answer_of
from limbeck.evaluation.tasks.predictions import AnswerPrediction
from limbeck.evaluation.tasks.task import Task, TaskRow

Compare = Callable[[str, str], tuple[bool, float]]
"""Prediction and one gold answer to whether they are the same, and to their F1."""


class AnswerScores(NamedTuple):
    """The scores of every question, in the order of the rows.

    Attributes:
        exact: 1 where the prediction is a gold answer, `[rows]`.
        f1: Of the gold answer nearest to the prediction, `[rows]`, 0 to 1.
    """

    exact: NDArray[np.float64]
    f1: NDArray[np.float64]


def score_answers(predictions: Mapping[str, AnswerPrediction], rows: Sequence[TaskRow], task: Task) -> AnswerScores:
    """Score the texts of the predictions, whatever their null odds; a question without a prediction scores 0.

    The rules are those of CMRC 2018 for `cmrc2018`; MLQA's for `mlqa`, and for an own task in another of its languages
    than English; else SQuAD's. Of a question without an answer the gold answer is the empty text, which SQuAD 2.0
    introduced; its script also passes over gold answers of which nothing remains when they are normalised.

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
    if task.name == "cmrc2018":
        return compare_cmrc
    if task.name == "mlqa" or (task.group == "own" and language != "en" and language in MLQA_LANGUAGES):
        return lambda prediction, gold: _compare_tokens(
            normalise_answer_of(prediction, language), normalise_answer_of(gold, language)
        )
    return compare_squad if task.answerable_only else compare_squad2


def _gold(row: TaskRow, task: Task) -> Sequence[str]:
    if not task.answerable_only:
        return [answer for answer in row.answers if normalise_answer(answer)] or [""]
    if not row.answers:
        raise CorpusError(f"The question '{row.id}' of {task.title} has no gold answer: its split cannot be scored.")
    return row.answers


def compare_squad(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as SQuAD 1.1 does: two answers of which nothing remains are the same, with an F1 of 0."""
    return _compare_tokens(normalise_answer(prediction), normalise_answer(gold))


def compare_squad2(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as SQuAD 2.0 does: where nothing remains of either, the F1 is 1 if nothing remains of both, else 0."""
    ours, theirs = normalise_answer(prediction), normalise_answer(gold)
    if not ours or not theirs:
        return ours == theirs, float(ours == theirs)
    return _compare_tokens(ours, theirs)


def compare_cmrc(prediction: str, gold: str) -> tuple[bool, float]:
    """Compare as CMRC 2018 does: the F1 is that of the longest common run of characters and words."""
    same = remove_punctuation(prediction) == remove_punctuation(gold)
    ours, theirs = mixed_segments(prediction), mixed_segments(gold)
    return same, _f1(longest_common_run(ours, theirs), len(ours), len(theirs))


def _compare_tokens(prediction: str, gold: str) -> tuple[bool, float]:
    ours, theirs = prediction.split(), gold.split()
    common = (Counter(ours) & Counter(theirs)).total()
    return prediction == gold, _f1(common, len(ours), len(theirs))


def _f1(common: int, predicted: int, wanted: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = common / predicted, common / wanted
    return 2 * precision * recall / (precision + recall)
