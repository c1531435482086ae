"""Questions without an answer: thresholds and parts, by hand and against a search."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from limbeck.evaluation.metrics import best_threshold, score
from limbeck.evaluation.submission import AnswerPrediction
from limbeck.evaluation.tasks import TASKS, TaskRow
from tests.evaluation.metrics import naive


def row(row_id: str, *answers: str) -> TaskRow:
    return TaskRow(row_id, "context", "question", answers=answers)


def test_by_hand() -> None:
    rows = [row("a", "old river"), row("b", "bridge"), row("c"), row("d")]
    predictions = {
        "a": AnswerPrediction("river", -3.0),
        "b": AnswerPrediction("bridge", 1.0),
        "c": AnswerPrediction("stone", -1.0),
        "d": AnswerPrediction("boat", 2.0),
    }
    found = score(TASKS["squad2"], "validation", rows, predictions)
    # At 0, "a" and "c" are answered: one in part, the other wrongly; "b" is emptied wrongly, "d" rightly.
    assert list(found)[:2] == ["f1_answer", "exact_match"]
    assert found == pytest.approx(
        {
            "f1_answer": (2 / 3 + 0 + 0 + 1) / 4,
            "exact_match": 1 / 4,
            # By exact match answering nothing is not beaten: "a" gains nothing, "c" loses, "b" only makes up for it.
            "best_exact": 2 / 4,
            "best_exact_threshold": 0.0,
            # By F1 answering only "a" gains 2/3, as answering "b" as well does, at the cost of "c".
            "best_f1": (2 / 3 + 2) / 4,
            "best_f1_threshold": -3.0,
            "has_answer_exact": 0.0,
            "has_answer_f1": 1 / 3,
            "no_answer_exact": 1 / 2,
            "no_answer_f1": 1 / 2,
        }
    )


def test_a_threshold_of_zero_is_answered_and_the_parts_that_have_no_rows_are_left_out() -> None:
    found = score(TASKS["squad2"], "validation", [row("a", "river")], {"a": AnswerPrediction("river", 0.0)})
    assert found["exact_match"] == 1.0 and found["best_exact_threshold"] == 0.0
    assert "has_answer_f1" in found and "no_answer_f1" not in found


def test_an_empty_prediction_of_a_question_without_an_answer_costs_nothing() -> None:
    rows = [row("a"), row("b", "river")]
    predictions = {"a": AnswerPrediction("", math.inf), "b": AnswerPrediction("river", 5.0)}
    found = score(TASKS["squad2"], "validation", rows, predictions)
    assert (found["best_exact"], found["best_exact_threshold"]) == (1.0, 5.0)
    assert found["exact_match"] == 0.5


def test_a_question_without_a_prediction_scores_nothing() -> None:
    found = score(TASKS["squad2"], "validation", [row("a"), row("b", "x")], {"b": AnswerPrediction("x", -1.0)})
    assert found["exact_match"] == 0.5


def test_the_best_threshold_is_that_of_a_search() -> None:
    draw = random.Random(3)
    found = set()
    for _ in range(200):
        count = draw.randint(1, 12)
        odds = [draw.uniform(-5, 5) for _ in range(count)]
        answerable = [draw.random() < 0.6 for _ in range(count)]
        values = [draw.choice((0.0, 0.25, 0.5, 1.0)) if has else 0.0 for has in answerable]
        ours = best_threshold(np.array(values), np.array(odds), np.array(answerable), np.zeros(count, dtype=bool))
        assert ours == pytest.approx(naive.best_threshold(values, odds, answerable))
        found.add(ours)
    assert len(found) > 50
