"""Tables say which F1 they show: of which class, which mean, or what older records had."""

import pytest

from limbeck.core.records import DevelopmentFigures
from limbeck.core.studies import Column, Evaluation, EvaluationCell
from limbeck.report.evaluation_tables import metrics_table
from limbeck.report.names import metric_of_cell, metric_of_column, metric_of_rows
from limbeck.report.scores import score_headings
from limbeck.report.student_results import development_results

OLDER = "F1 (second class of two, else macro)"
CLASSES = {"kind": "classification", "task": "own"}


@pytest.mark.parametrize(
    ("metric", "column", "name"),
    [
        ("f1", CLASSES | {"positive": "good"}, "F1 (positive: good)"),
        ("f1", CLASSES | {"positive": "very\ngood"}, "F1 (positive: very good)"),
        # Older records do not name the class; limbeck's own tasks have always had theirs.
        ("f1", CLASSES, OLDER),
        ("f1", CLASSES | {"task": "mrpc"}, "F1 (positive: equivalent)"),
        ("f1", CLASSES | {"task": "qqp"}, "F1 (positive: duplicate)"),
        # A plugin's kind may call something else f1.
        ("f1", {"kind": "plugin", "task": "own"}, "F1"),
        ("macro_f1", CLASSES | {"positive": "good"}, "macro F1"),
        ("micro_f1", CLASSES, "micro F1"),
        ("weighted_f1", CLASSES, "weighted F1"),
        ("f1_answer", {"kind": "question_answering", "task": "squad"}, "answer F1"),
        ("f1_entity", {"kind": "token_classification", "task": "own"}, "entity F1"),
    ],
)
def test_a_column_says_which_f1_it_has(metric, column, name):
    assert metric_of_column(metric, Column(key="own", title="Own", **column)) == name


def test_headings_and_rows_of_tables_say_which_f1_they_have():
    figure = {"mean": 60.0, "runs": [60.0]}
    column = {"key": "own", "title": "Own", "metric": "f1", **CLASSES, "positive": "good"}
    model = {"name": "a", "columns": {"own": {**figure, "metrics": {"f1": figure, "macro_f1": figure}}}}
    summary = Evaluation.read({"columns": [column], "models": [model]})
    assert score_headings(summary.columns, summary.models) == {"own": "Own\nF1 (positive: good)"}
    assert [row[1] for row in metrics_table(summary).rows] == ["F1 (positive: good)", "macro F1"]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"positive": "good"}, "F1 (positive: good)"),
        ({"labels": ["bad", "good"]}, "F1 (positive: good)"),
        ({"labels": ["bad", "good", "fine"]}, "macro F1"),
        ({}, OLDER),
        ({"task": "mrpc"}, "F1 (positive: equivalent)"),
    ],
)
def test_development_rows_say_which_f1_they_have(values, name):
    scores = DevelopmentFigures(**{"kind": "classification", "task": "development", "student": {"f1": 0.5}} | values)
    assert metric_of_rows("f1", scores) == name
    evaluation = type("Evaluated", (), {"development": [scores]})
    (result,) = development_results(evaluation, "text-classification")
    assert (result.metric_type, result.metric_name) == ("f1", f"{name} on development rows")


def test_cells_say_which_f1_they_have():
    assert metric_of_cell("f1", EvaluationCell(task="own", positive="good")) == "F1 (positive: good)"
    assert metric_of_cell("f1", EvaluationCell(task="own")) == OLDER
    assert metric_of_cell("f1", EvaluationCell(task="qqp")) == "F1 (positive: duplicate)"
