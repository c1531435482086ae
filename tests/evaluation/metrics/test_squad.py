"""SQuAD 1.1 and 2.0: hand-made cases, thresholds, and the scripts done slowly."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from limbeck.errors import CorpusError
from limbeck.evaluation.metrics import best_threshold, score, score_answers
from limbeck.evaluation.submission import AnswerPrediction
from limbeck.evaluation.tasks import TASKS, TaskRow
from tests.evaluation.metrics import naive

WORDS = ("the", "The", "a", "an", "river", "River", "river's", "stone-bridge", "U.S.", "10,000", "–", "“old”")
PIECES = (*WORDS, " ", "\t", "Δ", "another", "thean", "")


def row(row_id: str, *answers: str) -> TaskRow:
    return TaskRow(row_id, "context", "question", answers=answers, answer_starts=(0,) * len(answers))


def scores(name: str, prediction: str, *answers: str) -> tuple[float, float]:
    found = score_answers({"q": AnswerPrediction(prediction)}, [row("q", *answers)], TASKS[name])
    return float(found.exact[0]), float(found.f1[0])


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("The Denver Broncos.", ("Denver Broncos",), 1, 1),
        # Of several answers the best: 2 of 3 tokens of one, 1 of 1 of another.
        ("New York City", ("York", "New York"), 0, 0.8),
        ("", ("Denver",), 0, 0),
        # Nothing remains of either: the same, with no token in common.
        ("an", ("the",), 1, 0),
        ("", ("the",), 1, 0),
    ],
)
def test_squad_by_hand(prediction: str, answers: tuple[str, ...], exact: float, f1: float) -> None:
    assert scores("squad", prediction, *answers) == pytest.approx((exact, f1))


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("Broncos", ("Denver Broncos",), 0, 2 / 3),
        ("", (), 1, 1),
        ("the", (), 1, 1),
        ("Denver", (), 0, 0),
        ("", ("Denver",), 0, 0),
        # An answer of which nothing remains is none.
        ("", ("the",), 1, 1),
        ("x", ("the", "x"), 1, 1),
    ],
)
def test_squad2_by_hand(prediction: str, answers: tuple[str, ...], exact: float, f1: float) -> None:
    assert scores("squad2", prediction, *answers) == pytest.approx((exact, f1))


def test_xquad_is_scored_as_squad() -> None:
    german = TaskRow("q", "c", "?", answers=("der Fluss",), language="de")
    found = score_answers({"q": AnswerPrediction("Fluss")}, [german], TASKS["xquad"])
    assert found.exact[0] == 0 and found.f1[0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_against_the_slow_script(name: str) -> None:
    draw = random.Random(0)
    seen = set()
    for _ in range(500):
        prediction, *answers = (
            "".join(draw.choice(PIECES) + draw.choice(("", " ")) for _ in range(draw.randint(0, 4)))
            for _ in range(draw.randint(2, 4))
        )
        golds = answers
        if name == "squad2":
            golds = [answer for answer in answers if naive.squad_tokens(answer)] or [""]
        expected = (
            naive.exact(prediction, golds, naive.squad_tokens),
            naive.f1(prediction, golds, naive.squad_tokens, empty_is_right=name == "squad2"),
        )
        assert scores(name, prediction, *answers) == pytest.approx(expected), (prediction, answers)
        seen.add(tuple(round(value, 3) for value in expected))
    assert len(seen) > 5


def test_means_and_questions_without_a_prediction() -> None:
    rows = [row("a", "river"), row("b", "old bridge"), row("c", "stone")]
    predictions = {"a": AnswerPrediction("The river"), "b": AnswerPrediction("bridge")}
    assert score(TASKS["squad"], "validation", rows, predictions) == pytest.approx(
        {"f1_answer": (1 + 2 / 3) / 3, "exact_match": 1 / 3}
    )


def test_null_odds_mean_nothing_where_every_question_has_an_answer() -> None:
    found = score(TASKS["squad"], "validation", [row("a", "river")], {"a": AnswerPrediction("river", 99.0)})
    assert found == {"f1_answer": 1.0, "exact_match": 1.0}


def test_a_question_without_an_answer_is_refused_where_there_can_be_none() -> None:
    with pytest.raises(CorpusError, match="The question 'a' of SQuAD 1.1 has no gold answer"):
        score(TASKS["squad"], "validation", [row("a")], {"a": AnswerPrediction("river")})


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
