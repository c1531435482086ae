"""Scores at chance, against scikit-learn's dummy models and by trying every answer and every order."""

from itertools import chain, combinations, permutations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

from limbeck.kinds.chance_scores import chance_of_classes, chance_of_flags, chance_of_queries
from limbeck.kinds.kind import HeldOutRows
from limbeck.kinds.ranking_scores import score_query
from limbeck.kinds.registry import KINDS

LABELS = np.array([0] * 11 + [2] * 7 + [1] * 2)


def dummy_answers(strategy, **options):
    texts = np.zeros((len(LABELS), 1))
    return DummyClassifier(strategy=strategy, random_state=0, **options).fit(texts, LABELS).predict(texts)


def test_one_class_a_row_has_the_scores_of_dummy_models():
    chance = chance_of_classes(LABELS, classes=4, positive=2)
    most_frequent = dummy_answers("most_frequent")
    assert chance["accuracy"] == chance["micro_f1"] == pytest.approx(accuracy_score(LABELS, most_frequent))
    always_positive = dummy_answers("constant", constant=2)
    assert chance["f1"] == pytest.approx(f1_score(LABELS == 2, always_positive == 2))
    assert chance["weighted_f1"] >= f1_score(LABELS, most_frequent, average="weighted", zero_division=0)

    # Answers that are drawn as often as the labels occur, over many draws.
    draws = np.random.default_rng(0).choice(LABELS, size=(400, len(LABELS)))
    for name in ("macro", "weighted"):
        drawn = np.mean([f1_score(LABELS, draw, average=name, zero_division=0) for draw in draws])
        assert chance[f"{name}_f1"] >= drawn - 0.02
    assert chance["macro_f1"] == pytest.approx(1 / 3)


def test_several_classes_a_row_have_the_scores_of_the_best_constant_answer():
    flags = (np.random.default_rng(3).random((60, 4)) < [0.7, 0.4, 0.1, 0.3]).astype(int)
    chance = chance_of_flags(flags)
    subsets = chain.from_iterable(combinations(range(4), count) for count in range(5))
    constants = []
    for subset in subsets:
        answer = np.zeros_like(flags)
        answer[:, list(subset)] = 1
        constants.append(answer)
    for name in ("micro", "macro", "weighted"):
        best = max(f1_score(flags, answer, average=name, zero_division=0) for answer in constants)
        assert chance[f"{name}_f1"] == pytest.approx(best)
    assert chance["accuracy"] == pytest.approx(max(accuracy_score(flags, answer) for answer in constants))
    precision = average_precision_score(flags, np.zeros(flags.shape), average="macro")
    assert chance["mean_average_precision"] == pytest.approx(precision)


def test_documents_in_a_random_order_have_the_mean_of_all_orders():
    queries = [np.array([2.0, 0, 1, 0, 0]), np.array([0.0, 0, 0]), np.array([0.0, 1, 0, 3])]
    figures = {"ndcg_at_10": [], "mrr_at_10": []}
    for labels in queries:
        orders = [score_query(np.array(order, float), labels) for order in permutations(range(len(labels)))]
        for name, means in figures.items():
            means.append(np.mean([getattr(order, name) for order in orders]))
    expected = {name: pytest.approx(np.mean(means)) for name, means in figures.items()}
    assert chance_of_queries(queries) == expected

    # The first 10 ranks alone count: of 12 documents, a relevant one is there ten times of twelve.
    (single,) = (np.eye(1, 12)[0],)
    assert chance_of_queries([single])["mrr_at_10"] == pytest.approx(sum(1 / rank for rank in range(1, 11)) / 12)


def test_rows_without_a_scored_word_have_no_chance():
    assert chance_of_classes(np.array([], np.int64), classes=2, positive=None) == {}


def test_tags_and_several_classes_on_held_out_rows_have_the_chance_of_their_metric():
    rows = HeldOutRows(np.arange(4), classes=("O", "B-PER", "I-PER"))
    tags = np.array([0, 0, 1, 0])
    assert KINDS["token_classification"].held_out_chance(tags, rows) == {"accuracy": 0.75}
    flags = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    # Each row gets the first class: 3 hits of 4 that are given and 4 that are there.
    assert KINDS["multi_label"].held_out_chance(flags, rows) == {"micro_f1": pytest.approx(6 / 8)}
