"""The diagram of layers joins what the method does, for any depth and any mapping."""

import pytest

from limbeck.models.streams import StreamKey
from limbeck.report.figures import describe_streams, find_links
from limbeck.report.plots import SCORES

BASE, SMALL = "bert 12x768, 12 heads, FFN 3072", "bert 4x312, 12 heads, FFN 1200"
LARGE = "roberta 24x1024, 16 heads, FFN 4096"


def pairs(method, student=SMALL, teacher=BASE, **more):
    links = find_links(method, student, teacher, **more)
    return {kind.label: set(kind.pairs) for kind in links.drawing.kinds}


def test_the_published_mapping_of_elm():
    assert pairs({"name": "elm"}) == {
        "hidden_mse (hidden)": {(3, 5), (4, 10)},
        "attention_score_mse (query, key)": {(3, 5), (4, 10)},
    }


def test_one_layer_may_learn_from_many_and_relations_join_the_best_layer_of_a_large_teacher():
    found = pairs({"name": "hidden_states", "mapping": "uniform_consecutive"})["hidden_mse (hidden)"]
    assert found == {(i, t) for i in range(1, 5) for t in range(max(1, 3 * (i - 1)), 3 * i + 1)}
    relations = pairs({"name": "minilmv2", "relation_heads": 64}, "roberta 12x1024, 16 heads, FFN 4096", LARGE)
    assert set().union(*relations.values()) == {(12, 19)}


def test_scores_embeddings_and_baselines():
    distilbert = pairs({"name": "distilbert"}, "bert 6x768, 12 heads, FFN 3072")
    assert {(SCORES, SCORES)} in distilbert.values()
    tiny = pairs({"name": "tinybert"})
    assert tiny["hidden_mse (embedding)"] == {(0, 0)}
    assert set().union(*pairs({"name": "mlm"}).values()) == set()


def test_measured_layers_decide_where_the_mapping_says_so():
    cosines = [0.9] * 12
    for layer in (2, 5, 7, 11):
        cosines[layer - 1] = 0.1
    method = {"name": "hidden_states", "mapping": "contribution"}
    assert pairs(method, layer_cosines=cosines)["hidden_mse (hidden)"] == {(1, 2), (2, 5), (3, 7), (4, 11)}


@pytest.mark.parametrize(
    ("method", "student", "teacher"),
    [
        ({"name": "elm"}, "", BASE),
        ({"name": "elm"}, SMALL, "something else"),
        ({"name": "elm"}, "bert 999999999x4, 2 heads, FFN 8", BASE),
        ({"name": "elm"}, "bert 4x312, 0 heads, FFN 8", BASE),
        ({"name": "no such method"}, SMALL, BASE),
        ({}, SMALL, BASE),
        ({"name": "elm", "mapping": [9, 9, 9, 99]}, SMALL, BASE),
        ({"name": "elm", "unknown": 1}, SMALL, BASE),
    ],
)
def test_what_cannot_be_composed_is_not_drawn(method, student, teacher):
    assert find_links(method, student, teacher) is None


def test_streams_are_named_by_kind_and_layers():
    keys = [*(StreamKey("hidden", layer) for layer in range(1, 13)), StreamKey("query", 2), StreamKey("query", 4)]
    assert describe_streams(keys) == "hidden 1–12; query 2, 4"
