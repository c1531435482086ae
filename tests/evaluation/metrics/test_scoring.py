"""Classes and values by hand, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import score
from limbeck.kinds.task import AnswerPrediction
from limbeck.kinds.thresholds import choose_thresholds
from tests.support.tasks import make_task


def rows(labels):
    return [LabelledRow(str(number), "text", label=label) for number, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("name", "labels", "predictions", "expected"),
    [
        # 3 right positives, 1 right negative, 1 wrong positive, 1 wrong negative.
        ("mrpc", [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1], {"accuracy": 4 / 6, "f1": 3 / 4}),
        ("cola", [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 1], {"matthews": (3 * 1 - 1 * 1) / (4 * 4 * 2 * 2) ** 0.5}),
        # Of the classes 1, 0 and 4 / 5.
        ("three", [0, 1, 2, 2], [0, 2, 2, 2], {"macro_f1": (1 + 0 + 4 / 5) / 3, "micro_f1": 3 / 4}),
        ("three", [0, 1, 2, 2], [0, 2, 2, 2], {"weighted_f1": (1 + 0 + 2 * 4 / 5) / 4, "f1": 4 / 5}),
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
    if name == "three":
        task = replace(TASKS["mnli"], metrics=tuple(expected), positive=TASKS["mnli"].labels[2])
    else:
        task = TASKS[name]
    # Also of another task's split, on which a task is selected.
    assert score(task, "mnli:validation_matched", rows(labels), predictions) == pytest.approx(expected)


SEVERAL = make_task("multi_label", labels=("joy", "anger", "fear"))


def test_several_classes_by_hand():
    """Given are joy; joy and anger; anger; none: of joy and of anger one of two is right, and fear is missed."""
    labels = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
    probabilities = [(0.9, 0.2, 0.1), (0.5, 0.6, 0.1), (0.3, 0.8, 0.4), (0.1, 0.1, 0.1)]
    joy, anger = 2 / 3, 2 / 3
    # Joy's and fear's only rows come first; anger's comes second.
    precisions = (1, 1 / 2, 1)
    assert score(SEVERAL, "validation", rows(labels), probabilities) == pytest.approx(
        {
            "micro_f1": 2 * 2 / (4 + 3),
            "macro_f1": (joy + anger + 0) / 3,
            "accuracy": 2 / 4,
            "mean_average_precision": sum(precisions) / 3,
        }
    )
    # A class that no row has has no precision, and an F1 of 0.
    found = score(SEVERAL, "validation", rows([(1, 0, 0), (0, 1, 0)]), [(0.9, 0.2, 0.1), (0.1, 0.6, 0.1)])
    assert found == pytest.approx({"micro_f1": 1, "macro_f1": 2 / 3, "accuracy": 1, "mean_average_precision": 1})
    assert score(SEVERAL, "validation", rows([(0, 0, 0)]), [(0.9, 0.2, 0.1)])["mean_average_precision"] == 0


def test_thresholds_decide_and_are_said():
    task = replace(SEVERAL, thresholds=(0.95, 0.5, 0.05))
    found = score(task, "validation", rows([(0, 0, 1)]), [(0.9, 0.2, 0.1)])
    assert found["accuracy"] == 1
    assert [found[f"{name}_threshold"] for name in SEVERAL.labels] == [0.95, 0.5, 0.05]


def test_the_best_thresholds_are_found():
    """Against every threshold half way between two probabilities."""
    generator = np.random.default_rng(0)
    for count in (1, 5, 12):
        scores = np.round(generator.random((count, 3)), 1)
        labels = generator.random((count, 3)) < 0.4
        found = choose_thresholds(scores, rows([tuple(map(int, row)) for row in labels]))
        for column, has, threshold in zip(scores.T, labels.T, found, strict=True):
            values = np.unique(column)
            between = [*(values[1:] + values[:-1]) / 2, 0.5]
            tried = {each: f1_score(has, column >= each, zero_division=0) for each in between}
            best = [each for each, value in tried.items() if value == pytest.approx(max(tried.values()))]
            wanted = min(abs(each - 0.5) for each in best) if has.any() else 0
            assert abs(threshold - 0.5) == pytest.approx(wanted)
            assert not has.any() or f1_score(has, column >= threshold, zero_division=0) == pytest.approx(
                max(tried.values())
            )


@pytest.mark.parametrize(
    ("name", "split", "found", "predictions", "error", "message"),
    [
        ("mrpc", "test", rows([1]), [1], CorpusError, "The split 'test' of MRPC has no labels"),
        ("mrpc", "validation", rows([None]), [1], CorpusError, "The split 'validation' of MRPC has no labels"),
        ("mrpc", "validation", [], [], CorpusError, "has no rows to score"),
        ("mrpc", "validation", rows([1]), [1, 0], ValueError, "2 predictions for 1 rows"),
        (
            "mrpc",
            "validation",
            rows([1]),
            {"0": AnswerPrediction("x")},
            ValueError,
            "must be a list with one for each row",
        ),
        ("squad", "validation", rows([1]), [1], ValueError, "must be a dictionary from the id of each row"),
    ],
)
def test_predictions_that_cannot_be_scored(name, split, found, predictions, error, message):
    with pytest.raises(error, match=message):
        score(TASKS[name], split, found, predictions)


def test_every_kind_has_the_metrics_that_its_facts_name():
    for name, kind in KINDS.items():
        assert set(kind.facts.metrics) == set(kind.metrics), name
