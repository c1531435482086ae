"""Windows of a task's rows: which answers they are labelled with, and which rows are left out."""

from __future__ import annotations

from limbeck.corpus import SourceReport
from limbeck.corpus.answers import AnswerWindows
from limbeck.evaluation.answers import cut_rows
from limbeck.evaluation.tasks import TaskRow
from tests.support.models import tiny_tokenizer


def test_rows_that_cannot_be_trained_on_are_left_out_of_training_only() -> None:
    rows = [
        TaskRow("held", "the model", "of", answers=("model", "the"), answer_starts=(4, 0)),
        TaskRow("not held", "the model", "of", answers=("student",), answer_starts=(-1,)),
        TaskRow("space", "the  model", "of", answers=("  ",), answer_starts=(3,)),
        TaskRow("none", "the model", "of"),
    ]
    windows, report = AnswerWindows(tiny_tokenizer(), 40, 10), SourceReport()
    assert [(window.row, window.label) for window in cut_rows(windows, rows, report, training=True)] == [
        ("held", (4, 4)),  # [CLS] of [SEP] the model [SEP]
        ("none", (0, 0)),
    ]
    assert report.counts == {"answer without a place in its context's tokens, row left out": 2}
    evaluated = cut_rows(windows, rows, report)
    assert [window.row for window in evaluated] == [row.id for row in rows]
    assert {window.label for window in evaluated} == {(0, 0)}
