"""Windows of rows, and the best answer against a loop over every pair of tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from limbeck.corpus import SourceReport
from limbeck.corpus.rows.labelled_rows import NO_ANSWER, LabelledRow
from limbeck.corpus.tokens.answer_windows import AnswerWindow
from limbeck.kinds.answer_decoding import decode_answers
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import AnswerPrediction
from tests.support.models import tiny_tokenizer

CONTEXT = "The old river runs under a new stone bridge near the market in the city of boats"


def window(row: str, first: int, offsets: list[tuple[int, int]], after: int = 1) -> AnswerWindow:
    tokens = first + len(offsets) + after
    return AnswerWindow(row, [0] * tokens, None, first, np.array(offsets, dtype=np.int64).reshape(-1, 2), (0, 0))


def word_offsets(text: str) -> list[tuple[int, int]]:
    found, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        found.append((start, at))
    return found


def slow(
    windows: list[AnswerWindow],
    starts: list[NDArray[np.float64]],
    ends: list[NDArray[np.float64]],
    contexts: dict[str, str],
    n_best: int,
    longest: int,
) -> dict[str, tuple[str, float]]:
    """Every start with every end of every window, one by one."""
    found = {}
    for row in dict.fromkeys(window.row for window in windows):
        pairs, nulls = [], []
        for number, own in enumerate(windows):
            if own.row != row:
                continue
            inside = range(own.first, own.first + len(own.offsets))
            tokens = range(own.first + len(own.offsets) + 1)
            best_starts = sorted(tokens, key=lambda at: -starts[number][at])[:n_best]
            best_ends = sorted(tokens, key=lambda at: -ends[number][at])[:n_best]
            nulls.append(starts[number][0] + ends[number][0])
            for start in inside:
                for end in inside:
                    if start in best_starts and end in best_ends and start <= end < start + longest:
                        text = contexts[row][own.offsets[start - own.first][0] : own.offsets[end - own.first][1]]
                        pairs.append((starts[number][start] + ends[number][end], text))
        score, text = max(pairs, default=(-math.inf, ""))
        found[row] = (text, min(nulls) - score)
    return found


def test_against_the_loop() -> None:
    draw = np.random.default_rng(0)
    offsets = word_offsets(CONTEXT)
    contexts = {str(row): CONTEXT for row in range(30)}
    windows, starts, ends = [], [], []
    for row in contexts:
        for begin in range(0, len(offsets), 6):
            first = int(draw.integers(1, 5))
            own = window(row, first, offsets[begin : begin + 9], after=int(draw.integers(1, 4)))
            windows.append(own)
            # Padding after the window's tokens, which would win if it were looked at.
            padding = np.full(3, 50.0)
            starts.append(np.concatenate([draw.normal(size=len(own.input_ids)), padding]))
            ends.append(np.concatenate([draw.normal(size=len(own.input_ids)), padding]))
    for n_best, longest in ((20, 30), (6, 3), (9, 1)):
        found = decode_answers(
            windows, starts, ends, contexts, n_best=n_best, max_answer_tokens=longest, answerable_only=False
        )
        expected = slow(windows, starts, ends, contexts, n_best, longest)
        assert list(found) == list(contexts)
        assert {row: prediction.text for row, prediction in found.items()} == {
            row: text for row, (text, _) in expected.items()
        }
        for row, prediction in found.items():
            assert prediction.null_odds == pytest.approx(expected[row][1])


def test_by_hand() -> None:
    context = "a b c"
    own = window("q", 2, [(0, 1), (2, 3), (4, 5)])
    #                  CLS    ?   a    b    c  SEP
    starts = np.array([1.0, 9.0, 0.0, 3.0, 2.0, 9.0])
    ends = np.array([0.5, 9.0, 5.0, 0.0, 1.0, 9.0])
    # "b" to "a" would be best, but ends before it starts; "a" alone has 5, "b c" 4.
    found = decode_answers([own], [starts], [ends], {"q": context}, answerable_only=False)
    assert found == {"q": AnswerPrediction("a", 1.5 - 5.0)}
    assert decode_answers([own], [starts], [ends], {"q": context}) == {"q": AnswerPrediction("a", 0.0)}
    diverged = decode_answers([own], [starts * np.nan], [ends], {"q": context}, answerable_only=False)
    assert np.isnan(diverged["q"].null_odds), "no model knows that there is no answer by having no scores"


def test_best_starts_and_ends_that_never_pair_give_an_empty_answer() -> None:
    context = "a b c"
    own = window("q", 1, [(0, 1), (2, 3), (4, 5)])
    starts, ends = np.array([0.0, 0.0, 1.0, 9.0, 0.0]), np.array([0.0, 9.0, 2.0, 1.0, 0.0])
    # The best start is "c" and the best end "a", which lies before it. No other pair is looked for.
    answers = decode_answers([own], [starts], [ends], {"q": context}, n_best=1, answerable_only=False)
    assert answers == {"q": AnswerPrediction("", math.inf)}
    # Another window of the question may still have an answer.
    other = window("q", 1, [(2, 3), (4, 5)])
    scores = np.array([0.0, 1.0, 3.0, 0.0])
    answers = decode_answers([own, other], [starts, scores], [ends, scores], {"q": context}, n_best=1)
    assert answers["q"].text == "c"


def test_tokens_outside_of_the_context_are_among_the_best_ones() -> None:
    own = window("q", 2, [(0, 1), (2, 3)])
    starts = ends = np.array([8.0, 9.0, 1.0, 2.0, 7.0])
    assert decode_answers([own], [starts], [ends], {"q": "a b"}, n_best=3)["q"].text == ""
    assert decode_answers([own], [starts], [ends], {"q": "a b"}, n_best=4)["q"].text == "b"


def test_tokens_without_characters_are_no_answer() -> None:
    own = window("q", 1, [(0, 0), (0, 1)])
    starts, ends = np.array([0.0, 9.0, 1.0]), np.array([0.0, 9.0, 1.0])
    assert decode_answers([own], [starts], [ends], {"q": "x"})["q"].text == "x"
    empty = decode_answers([window("q", 1, [])], [np.zeros(2)], [np.zeros(2)], {"q": ""}, answerable_only=False)
    assert empty == {"q": AnswerPrediction("", math.inf)}
    blank = decode_answers([window("q", 1, [(0, 0)])], [np.zeros(3)], [np.zeros(3)], {"q": ""}, answerable_only=False)
    assert blank == {"q": AnswerPrediction("", math.inf)}


def test_scores_must_be_one_a_window() -> None:
    with pytest.raises(ValueError, match="shorter"):
        decode_answers([window("q", 1, [(0, 1)])], [], [], {"q": "x"})


def test_rows_that_cannot_be_trained_on_are_left_out_of_training_only() -> None:
    rows = [
        LabelledRow("held", "the model", "of", (4, 9), answers=("model", "the"), answer_starts=(4, 0)),
        LabelledRow("not held", "the model", "of", None, answers=("student",), answer_starts=(-1,)),
        LabelledRow("space", "the  model", "of", (3, 5), answers=("  ",), answer_starts=(3,)),
        LabelledRow("none", "the model", "of", NO_ANSWER),
    ]
    kind, report = KINDS["question_answering"], SourceReport()
    windows = kind.encoder(tiny_tokenizer(), 40, 10, paired=True)
    # [CLS] of [SEP] the model [SEP]
    assert windows.encode(rows, report).labels == [[4, 4], [0, 0]]
    assert report.counts == {"answer whose characters are in no token of its context, row left out": 2}
    assert kind.encode_for_scoring(windows, rows, report, 0)["row"] == [row.id for row in rows]
