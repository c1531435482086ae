"""Answers as SQuAD, MLQA and CMRC 2018 score them: by hand, and against their scripts done slowly."""

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks import squad_figures

from limbeck.core.intervals import of_share
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds import answer_rules
from limbeck.kinds.answer_rules import compare_cmrc, normalise_answer_of
from limbeck.kinds.answer_scores import best_threshold, score_answers
from limbeck.kinds.chinese_segments import mixed_segments
from limbeck.kinds.kind import HeldOutRows
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import chance_of, only_answer, score
from limbeck.kinds.task import AnswerPrediction
from tests.evaluation.metrics import naive

TABLES = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8"))


def row(row_id, *answers, language="en"):
    return LabelledRow(
        row_id, "context", "question", answers=answers, answer_starts=(0,) * len(answers), language=language
    )


def scores(name, language, prediction, answers):
    task = replace(TASKS["squad"], name="mine", group="own") if name == "mine" else TASKS[name]
    found = score_answers({"q": AnswerPrediction(prediction)}, [row("q", *answers, language=language)], task)
    return found.exact[0], found.f1[0]


@pytest.mark.parametrize(("name", "language", "prediction", "answers", "exact", "f1"), TABLES["by hand"])
def test_scores_by_hand(name, language, prediction, answers, exact, f1):
    assert scores(name, language, prediction, answers) == pytest.approx((exact, f1))


@pytest.mark.parametrize(("name", "language", "pieces"), TABLES["pieces"], ids=lambda part: str(part)[:6])
def test_scores_are_those_of_the_slow_scripts(name, language, pieces):
    draw, seen = random.Random(0), set()
    tokens = naive.mlqa_tokens(language) if name == "mlqa" else naive.squad_tokens
    for _ in range(400):
        prediction, *answers = (
            "".join(draw.choice(pieces) + draw.choice(("", " ")) for _ in range(draw.randint(0, 4)))
            for _ in range(draw.randint(2, 4))
        )
        golds = [answer for answer in answers if tokens(answer)] or [""] if name == "squad2" else answers
        f1 = naive.f1(prediction, golds, tokens, empty_is_right=name == "squad2")
        expected = naive.exact(prediction, golds, tokens), f1
        assert scores(name, language, prediction, answers) == pytest.approx(expected), (prediction, answers)
        seen.add(round(f1, 3))
    assert len(seen) > 4


def test_a_language_without_rules_is_refused():
    with pytest.raises(CorpusError, match="cannot compare answers in the language 'tr'"):
        normalise_answer_of("köprü", "tr")


@pytest.mark.parametrize(("text", "segments"), TABLES["segments"])
def test_segments_of_cmrc(text, segments):
    assert mixed_segments(text) == segments


def test_the_longest_common_run_is_that_of_a_search():
    draw = random.Random(2)
    for _ in range(200):
        first, second = ("".join(draw.choices("战国无", k=draw.randint(1, 9))) for _ in range(2))
        common = naive.longest_common(first, second)
        assert compare_cmrc(first, second)[1] == pytest.approx(2 * common / (len(first) + len(second)))


@pytest.mark.parametrize(("name", "golds", "predictions", "expected"), TABLES["figures"])
def test_figures_by_hand(name, golds, predictions, expected):
    rows = [row(row_id, *answers) for row_id, answers in golds.items()]
    found = score(TASKS[name], "validation", rows, {key: AnswerPrediction(*of) for key, of in predictions.items()})
    assert list(found) == list(expected) and found == pytest.approx(expected)


def test_a_question_without_an_answer_is_refused_where_there_can_be_none():
    with pytest.raises(CorpusError, match="The question 'a' of SQuAD 1.1 has no correct answer"):
        score(TASKS["squad"], "validation", [row("a")], {"a": AnswerPrediction("river")})


def test_the_best_threshold_is_that_of_a_search():
    draw, found = random.Random(3), set()
    for _ in range(200):
        count = draw.randint(1, 12)
        odds = [draw.uniform(-5, 5) for _ in range(count)]
        answerable = [draw.random() < 0.6 for _ in range(count)]
        values = [draw.choice((0.0, 0.25, 0.5, 1.0)) if has else 0.0 for has in answerable]
        ours = best_threshold(np.array(values), np.array(odds), np.array(answerable), np.zeros(count, dtype=bool))
        assert ours == pytest.approx(naive.best_threshold(values, odds, answerable))
        found.add(ours)
    assert len(found) > 50


def test_figures_are_those_of_the_scripts_for_answers_of_squad_that_are_changed_by_lot(monkeypatch):
    """Of all questions: `benchmarks/squad_figures.py`."""
    texts = [
        ["Denver Broncos", "the Denver Broncos", "Broncos"],
        ["Levi's Stadium in the San Francisco Bay Area at Santa Clara, California", "Santa Clara"],
        ["1 July 1851", "1851"],
        ["Château d'If", "the Château d’If"],
        ["$1.2 billion", "US$1.2 billion", "1.2 billion"],
        ["a", "an A"],
        ["東京", "Tokyo (東京)"],
    ]
    golds = {f"{copy}-{number}": of for copy in range(9) for number, of in enumerate(texts)}
    compared, differing = squad_figures.compare_draw(golds, random.Random(4))
    assert compared == 4 * len(golds) + 12 and differing == []
    monkeypatch.setattr(answer_rules, "_ENGLISH_ARTICLES", re.compile("the"))
    assert squad_figures.compare_draw(golds, random.Random(4))[1]


def interval_of_f1(predictions, rows, task):
    kind = KINDS["question_answering"]
    figures = score(task, "validation", rows, predictions)
    return kind.interval("f1_answer", figures["f1_answer"], task, rows, predictions)


def test_the_interval_of_f1_is_within_0_and_1():
    rows = [row(str(number), "the old river") for number in range(30)]
    # 28 answers are right and two are "river", with an F1 of 2/3 since articles do not count.
    predictions = {str(number): AnswerPrediction("the old river") for number in range(28)}
    predictions |= {str(number): AnswerPrediction("river") for number in (28, 29)}
    values = [1.0] * 28 + [2 / 3] * 2
    mean = float(np.mean(values))
    half = 1.959964 * float(np.std(values, ddof=1)) / 30**0.5
    assert mean + half > 1
    assert interval_of_f1(predictions, rows, TASKS["squad"]) == pytest.approx((mean - half, 1.0))


@pytest.mark.parametrize(("text", "right"), [("the old river", 30), ("a bridge", 0)])
def test_answers_that_are_all_right_or_all_wrong_have_the_interval_of_their_share(text, right):
    rows = [row(str(number), "the old river") for number in range(30)]
    predictions = {str(number): AnswerPrediction(text) for number in range(30)}
    interval = interval_of_f1(predictions, rows, TASKS["squad"])
    assert interval == of_share(right / 30, 30)
    assert interval[1] - interval[0] > 0.1
    # So a single question has a finite interval.
    assert interval_of_f1({"0": predictions["0"]}, rows[:1], TASKS["squad"]) == of_share(right / 30, 1)


def test_equal_answers_that_are_partly_right_have_no_interval():
    rows = [row(str(number), "the old river") for number in range(5)]
    predictions = {str(number): AnswerPrediction("river") for number in range(5)}
    assert interval_of_f1(predictions, rows, TASKS["squad"]) is None


def test_no_answers_at_all_score_the_share_of_questions_without_an_answer():
    rows = [row("a", "river"), row("b"), row("c"), row("d", "bridge"), row("e")]
    predictions = {each.id: AnswerPrediction("river", null_odds=1.0) for each in rows}
    task = TASKS["squad2"]
    figures = score(task, "validation", rows, predictions)
    expected = {name: pytest.approx(0.6) for name in ("exact_match", "f1_answer")}
    assert {name: figures[name] for name in expected} == expected
    assert chance_of(task, rows) == expected
    assert only_answer(task, predictions) == "no answer"

    # A single answer is enough to be more than that, and empty text is no answer.
    assert only_answer(task, predictions | {"a": AnswerPrediction("river", null_odds=-1.0)}) is None
    assert only_answer(task, predictions | {"a": AnswerPrediction("", null_odds=-1.0)}) == "no answer"
    assert only_answer(task, {"a": predictions["a"]}) is None


def test_questions_that_all_have_answers_have_no_chance():
    rows = [row("a", "river"), row("b", "bridge")]
    task = TASKS["squad"]
    assert chance_of(task, rows) == {}
    # Null odds empty no answer there.
    predictions = {each.id: AnswerPrediction("river", null_odds=1.0) for each in rows}
    assert only_answer(task, predictions) is None


def test_windows_without_an_answer_are_the_chance_of_held_out_windows():
    kind = KINDS["question_answering"]
    labels = np.array([[0, 0], [3, 5], [0, 0], [0, 0], [0, 2]])
    chance = kind.held_out_chance(labels, HeldOutRows(np.arange(5)))
    assert chance == {"exact_span": pytest.approx(0.6)}
    assert kind.held_out_score(np.zeros_like(labels), labels) == pytest.approx(0.6)
