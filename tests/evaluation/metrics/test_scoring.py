"""Classes and values against scikit-learn and scipy, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from limbeck.errors import CorpusError
from limbeck.evaluation.metrics import METRICS, score
from limbeck.evaluation.submission import AnswerPrediction
from limbeck.evaluation.tasks import TASKS, SplitFacts, TaskRow


def rows(labels: list[float]) -> list[TaskRow]:
    return [TaskRow(str(number), "text", label=label) for number, label in enumerate(labels)]


def test_classes_by_hand() -> None:
    labels, predictions = [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1]
    # 3 right positives, 1 right negative, 1 wrong positive, 1 wrong negative.
    assert score(TASKS["mrpc"], "validation", rows(labels), predictions) == pytest.approx(
        {"accuracy": 4 / 6, "f1": 3 / 4}
    )
    assert score(TASKS["cola"], "validation", rows(labels), predictions) == pytest.approx(
        {"matthews": (3 * 1 - 1 * 1) / (4 * 4 * 2 * 2) ** 0.5}
    )
    three = replace(TASKS["mnli"], metrics=("f1",))  # Of the classes 1, 0 and 4 / 5.
    found = score(three, "validation_matched", rows([0, 1, 2, 2]), [0, 2, 2, 2])
    assert found == pytest.approx({"f1": (1 + 0 + 4 / 5) / 3})


def test_correlations_by_hand() -> None:
    # The order is turned round but for one neighbour: 1 - 6 * 18 / (4 * 15).
    found = score(TASKS["stsb"], "validation", rows([1.0, 2.0, 3.0, 4.0]), [4.0, 2.0, 3.0, 1.0])
    assert found["spearman"] == pytest.approx(-0.8) and found["pearson"] == pytest.approx(-0.8)


def test_what_has_no_correlation_is_zero() -> None:
    for labels, predictions in (([1.0, 2.0], [3.0, 3.0]), ([1.0, 1.0], [3.0, 4.0]), ([1.0], [2.0])):
        found = score(TASKS["stsb"], "validation", rows(labels), predictions)
        assert found == {"pearson": 0.0, "spearman": 0.0}
    assert score(TASKS["cola"], "validation", rows([1, 0]), [1, 1]) == {"matthews": 0.0}


def test_a_class_that_is_never_predicted_has_an_f1_of_zero() -> None:
    assert score(TASKS["mrpc"], "validation", rows([0, 0]), [0, 0]) == {"accuracy": 1.0, "f1": 0.0}


def test_metrics_of_a_split_come_before_those_of_its_task() -> None:
    own = replace(TASKS["mrpc"], splits={"hard": SplitFacts(metrics=("matthews",)), "easy": SplitFacts()})
    assert list(score(own, "hard", rows([1, 0]), [1, 0])) == ["matthews"]
    assert list(score(own, "easy", rows([1, 0]), [1, 0])) == ["accuracy", "f1"]
    # The split of another task, on which a task is selected.
    assert list(score(own, "mnli:validation_matched", rows([1, 0]), [1, 0])) == ["accuracy", "f1"]


def test_refusals() -> None:
    with pytest.raises(CorpusError, match="The split 'test' of MRPC is unlabelled"):
        score(TASKS["mrpc"], "test", rows([1]), [1])
    with pytest.raises(CorpusError, match="The split 'validation' of MRPC is unlabelled"):
        score(TASKS["mrpc"], "validation", [TaskRow("0", "text")], [1])
    with pytest.raises(CorpusError, match="has no rows to score"):
        score(TASKS["mrpc"], "validation", [], [])
    with pytest.raises(ValueError, match="2 predictions for 1 rows"):
        score(TASKS["mrpc"], "validation", rows([1]), [1, 0])
    with pytest.raises(ValueError, match="must be one a row"):
        score(TASKS["mrpc"], "validation", rows([1]), {"0": AnswerPrediction("x")})
    with pytest.raises(ValueError, match="must be answers by row id"):
        score(TASKS["squad"], "validation", rows([1]), [1])
    with pytest.raises(Exception, match=r"Unknown metric 'acuracy'\. Did you mean 'accuracy'\?"):
        METRICS["acuracy"]
