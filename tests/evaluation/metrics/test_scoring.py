"""Classes and values by hand, and what is refused."""

from dataclasses import replace

import pytest

from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.metrics import METRICS, score
from limbeck.evaluation.tasks import TASKS, AnswerPrediction, TaskRow


def rows(labels):
    return [TaskRow(str(number), "text", label=label) for number, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("name", "labels", "predictions", "expected"),
    [
        # 3 right positives, 1 right negative, 1 wrong positive, 1 wrong negative.
        ("mrpc", [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1], {"accuracy": 4 / 6, "f1": 3 / 4}),
        ("cola", [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1], {"matthews": (3 * 1 - 1 * 1) / (4 * 4 * 2 * 2) ** 0.5}),
        # Of the classes 1, 0 and 4 / 5.
        ("three", [0, 1, 2, 2], [0, 2, 2, 2], {"f1": (1 + 0 + 4 / 5) / 3}),
        # The order is turned round but for one neighbour: 1 - 6 * 18 / (4 * 15).
        ("stsb", [1.0, 2.0, 3.0, 4.0], [4.0, 2.0, 3.0, 1.0], {"pearson": -0.8, "spearman": -0.8}),
        # Without a correlation, or a class that is ever predicted, it is zero.
        ("stsb", [1.0, 2.0], [3.0, 3.0], {"pearson": 0.0, "spearman": 0.0}),
        ("stsb", [1.0, 1.0], [3.0, 4.0], {"pearson": 0.0, "spearman": 0.0}),
        ("stsb", [1.0], [2.0], {"pearson": 0.0, "spearman": 0.0}),
        ("cola", [1, 0], [1, 1], {"matthews": 0.0}),
        ("mrpc", [0, 0], [0, 0], {"accuracy": 1.0, "f1": 0.0}),
    ],
)
def test_scores_by_hand(name, labels, predictions, expected):
    task = replace(TASKS["mnli"], metrics=("f1",)) if name == "three" else TASKS[name]
    # Also of another task's split, on which a task is selected.
    assert score(task, "mnli:validation_matched", rows(labels), predictions) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "split", "found", "predictions", "error", "message"),
    [
        ("mrpc", "test", rows([1]), [1], CorpusError, "The split 'test' of MRPC is unlabelled"),
        ("mrpc", "validation", rows([None]), [1], CorpusError, "The split 'validation' of MRPC is unlabelled"),
        ("mrpc", "validation", [], [], CorpusError, "has no rows to score"),
        ("mrpc", "validation", rows([1]), [1, 0], ValueError, "2 predictions for 1 rows"),
        ("mrpc", "validation", rows([1]), {"0": AnswerPrediction("x")}, ValueError, "must be one a row"),
        ("squad", "validation", rows([1]), [1], ValueError, "must be answers by row id"),
    ],
)
def test_predictions_that_cannot_be_scored(name, split, found, predictions, error, message):
    with pytest.raises(error, match=message):
        score(TASKS[name], split, found, predictions)


def test_an_unknown_metric_is_refused():
    with pytest.raises(RecipeError, match=r"Unknown metric 'acuracy'\. Did you mean 'accuracy'\?"):
        METRICS["acuracy"]
