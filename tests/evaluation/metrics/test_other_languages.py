"""MLQA's rules of each language, and CMRC 2018's."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from limbeck.errors import CorpusError
from limbeck.evaluation.metrics import compare_cmrc, mixed_segments, normalise_answer_of, score_answers, split_words
from limbeck.evaluation.submission import AnswerPrediction
from limbeck.evaluation.tasks import TASKS, TaskRow
from tests.evaluation.metrics import naive


def scores(name: str, language: str, prediction: str, *answers: str) -> tuple[float, float]:
    row = TaskRow("q", "c", "?", answers=answers, language=language)
    found = score_answers({"q": AnswerPrediction(prediction)}, [row], TASKS[name])
    return float(found.exact[0]), float(found.f1[0])


WORDS = {
    "en": ("The", "a", "river", "–", "old,", "theatre"),
    "de": ("Der", "die", "Fluss", "einer", "„alt“", "Eines-"),
    "es": ("El", "las", "río", "¡unas!", "viejo"),
    "vi": ("những", "của", "sông", "cũ.", "Cái"),
    "ar": ("النهر", "ال", "جسر", "،", "والمال"),
    "hi": ("नदी", "एक", "पुल।", "का"),
    "zh": ("战国", "无双3", "koei", "，", "《", " ", "the"),
}


@pytest.mark.parametrize("language", list(WORDS))
def test_mlqa_against_the_slow_script(language: str) -> None:
    draw = random.Random(1)
    tokens = naive.mlqa_tokens(language)
    seen = set()
    for _ in range(200):
        texts = [" ".join(draw.choices(WORDS[language], k=draw.randint(0, 4))) for _ in range(3)]
        expected = naive.exact(texts[0], texts[1:], tokens), naive.f1(texts[0], texts[1:], tokens)
        assert scores("mlqa", language, *texts) == pytest.approx(expected), texts
        seen.add(round(expected[1], 3))
    assert len(seen) > 3


def test_own_tasks_follow_their_language() -> None:
    own = replace(TASKS["squad"], name="mine", group="own")
    german = TaskRow("q", "c", "?", answers=("der Fluss",), language="de")
    english = replace(german, language="en")
    turkish = replace(german, language="tr")
    prediction = {"q": AnswerPrediction("Fluss")}
    assert [score_answers(prediction, [row], own).exact[0] for row in (german, english, turkish)] == [1, 0, 0]


def test_a_language_without_rules_is_refused() -> None:
    with pytest.raises(CorpusError, match="no rules for the language 'tr'"):
        normalise_answer_of("köprü", "tr")


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("《战国无双3》", ["战", "国", "无", "双", "3"]),
        ("光荣和ω-Force开发", ["光", "荣", "和", "ωforce", "开", "发"]),
        (" It's 3.5, or 10,000. ", ["it", "'s", "3.5", ",", "or", "10,000", "."]),
        ('"Old Bridge" (1903)', ["``", "old", "bridge", "''", "(", "1903", ")"]),
        ("St. Paul 25℃…", ["st.", "paul", "25℃…"]),
        # Only these marks are passed over, and one of an ellipsis is none of them.
        ("你好，世界！……", ["你", "好", "世", "界", "……"]),
        ("don't stop...", ["do", "n't", "stop", "..."]),
        ("(u.s.)", ["(", "u.s", ".", ")"]),
        ("a,b,1", ["a", ",", "b,1"]),
        ("", []),
    ],
)
def test_cmrc_segments(text: str, segments: list[str]) -> None:
    assert mixed_segments(text) == segments


def test_quotation_marks_open_and_close() -> None:
    assert split_words('""x" "y"') == ["``", "``", "x", "''", "``", "y", "''"]


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("光荣和ω-force", ("光荣和ω-Force",), 1, 1),
        ("光荣，", ("光荣",), 1, 1),
        # The longest common run is 3 characters of 4 and of 5.
        ("武田信玄", ("信玄武田信", "x"), 0, 2 / 3),
        # 武 and 玄 are in both, but not side by side.
        ("武玄", ("武田信玄",), 0, 1 / 3),
        ("", ("光荣",), 0, 0),
        ("，", ("。",), 1, 0),
        ("1998年", ("1998年被", "1998年"), 1, 1),
    ],
)
def test_cmrc_by_hand(prediction: str, answers: tuple[str, ...], exact: float, f1: float) -> None:
    assert scores("cmrc2018", "zh", prediction, *answers) == pytest.approx((exact, f1))


def test_the_longest_common_run_is_that_of_a_search() -> None:
    draw = random.Random(2)
    for _ in range(200):
        first, second = ("".join(draw.choices("战国无", k=draw.randint(1, 9))) for _ in range(2))
        common = naive.longest_common(first, second)
        assert compare_cmrc(first, second)[1] == pytest.approx(2 * common / (len(first) + len(second)))
