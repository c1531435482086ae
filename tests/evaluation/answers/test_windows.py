"""Windows of rows: those that limbeck distils on, with the place of every token."""

from __future__ import annotations

import random
from typing import Any

import pytest

from limbeck.corpus import SourceReport
from limbeck.corpus.answers import AnswerEncoder
from limbeck.corpus.labelled import NO_ANSWER, Example
from limbeck.errors import CorpusError
from limbeck.evaluation.answers import AnswerWindows
from limbeck.evaluation.task import TaskRow
from tests.support.corpora import byte_tokenizer
from tests.support.models import tiny_tokenizer

LENGTH, STRIDE = 40, 10
WORDS = ("the", "model", "of", "a", "teacher", "is", "ab", "and", "xyz", "student,", "q", "(layer)", "in", "12")


def random_rows(count: int) -> list[TaskRow]:
    """Contexts of 1 to 60 words with an answer of up to 5 of them; one in five has none."""
    draw = random.Random(0)
    rows = []
    for number in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randint(1, 60))]
        first = draw.randrange(len(words))
        start = len(" ".join([*words[:first], ""]))
        answer = " ".join(words[first : first + draw.randint(1, 5)])
        found = {} if number % 5 == 4 else {"answers": (answer, "other"), "answer_starts": (start, 0)}
        rows.append(
            TaskRow(str(number), " ".join(words), " ".join(draw.choices(WORDS, k=draw.randint(1, 25))), **found)
        )
    return rows


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["bert", "roberta", "llama"])
def test_windows_are_those_of_the_labelled_corpus(family: str, side: str) -> None:
    tokenizer: Any = tiny_tokenizer(family)
    tokenizer.padding_side = side
    rows = random_rows(60)
    labels = [
        (row.answer_starts[0], row.answer_starts[0] + len(row.answers[0])) if row.answers else NO_ANSWER for row in rows
    ]
    examples = [Example(row.text, row.pair, label) for row, label in zip(rows, labels, strict=True)]
    expected = AnswerEncoder(tokenizer, LENGTH, STRIDE).encode(examples, SourceReport())
    report = SourceReport()
    windows = AnswerWindows(tokenizer, LENGTH, STRIDE).cut(rows, report, training=True)
    assert len(windows) > 110
    assert [window.input_ids for window in windows] == expected.input_ids
    assert [list(window.label) for window in windows] == expected.labels
    assert [window.token_type_ids for window in windows] == (expected.token_type_ids or [None] * len(windows))
    assert sum(count for kind, count in report.counts.items() if kind.startswith("question cut to")) > 10
    assert list(dict.fromkeys(window.row for window in windows)) == [row.id for row in rows]


@pytest.mark.parametrize("side", ["right", "left"])
def test_offsets_are_those_of_the_tokenizer(side: str) -> None:
    tokenizer: Any = tiny_tokenizer()
    tokenizer.padding_side = side
    right = side == "right"
    rows = [row for row in random_rows(40) if len((row.pair or "").split()) < 4]
    windows = AnswerWindows(tokenizer, LENGTH, STRIDE).cut(rows, SourceReport())
    expected = []
    for row in rows:
        encoded = tokenizer(
            *((row.pair, row.text) if right else (row.text, row.pair)),
            truncation="only_second" if right else "only_first",
            max_length=LENGTH,
            stride=STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for number in range(len(encoded["input_ids"])):
            places = [place for place, text in enumerate(encoded.sequence_ids(number)) if text == int(right)]
            offsets = [list(encoded["offset_mapping"][number][place]) for place in places]
            expected.append((row.id, places[0], offsets))
    assert [(window.row, window.first, window.offsets.tolist()) for window in windows] == expected


def test_offsets_give_back_the_text() -> None:
    tokenizer = byte_tokenizer("[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]")
    context = "Ça va — „très“ bien, 日本語."
    (window,) = AnswerWindows(tokenizer, 100, 0).cut([TaskRow("q", context, "Où?")], SourceReport())
    spans = [context[start:end] for start, end in window.offsets.tolist()]
    assert set("".join(spans)) == set(context)
    assert tokenizer.decode(window.input_ids[window.first : window.first + len(spans)]) == context


def test_rows_that_cannot_be_trained_on_are_left_out_of_training_only() -> None:
    rows = [
        TaskRow("held", "the model", "of", answers=("model",), answer_starts=(4,)),
        TaskRow("not held", "the model", "of", answers=("student",), answer_starts=(-1,)),
        TaskRow("space", "the  model", "of", answers=("  ",), answer_starts=(3,)),
        TaskRow("none", "the model", "of"),
    ]
    windows, report = AnswerWindows(tiny_tokenizer(), LENGTH, STRIDE), SourceReport()
    assert [window.row for window in windows.cut(rows, report, training=True)] == ["held", "none"]
    assert report.counts == {"answer without a place in its context's tokens, row left out": 2}
    evaluated = windows.cut(rows, report)
    assert [window.row for window in evaluated] == [row.id for row in rows]
    assert {window.label for window in evaluated} == {(0, 0)}


def test_refusals_are_those_of_the_labelled_corpus() -> None:
    with pytest.raises(CorpusError, match="length 40 and stride 36 leave no room"):
        AnswerWindows(tiny_tokenizer(), 40, 36)
