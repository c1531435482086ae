"""nDCG and reciprocal ranks of queries' documents, by hand and by their definition; ties, and queries without any."""

import itertools
import math
import random

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.kinds.ranking_scores import score_query
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import score

TASK = TaskDefinition(name="ranks", type="ranking", files={"train": "a.jsonl", "validation": "b.jsonl"}).task


def documents(*labels):
    """Rows of queries, a list of labels each."""
    numbered = [(query, label) for query, found in enumerate(labels) for label in found]
    return [LabelledRow(str(n), f"query {query}", "document", label) for n, (query, label) in enumerate(numbered)]


def test_means_over_queries():
    rows = documents([0, 1, 0], [1, 0], [0, 0], [2.0], [0])
    # The relevant document is second of three; first of two; not there; alone; not there.
    found = score(TASK, "validation", rows, [3.0, 2.0, -1.0, 0.5, 0.4, 9.0, 8.0, 0.0, 0.0])
    assert found == pytest.approx({"ndcg_at_10": (1 / math.log2(3) + 1 + 0 + 1 + 0) / 5, "mrr_at_10": (0.5 + 2) / 5})


def by_definition(order, labels):
    """nDCG and reciprocal rank of an order of documents, at 10."""
    gain, best = (
        sum(label / math.log2(rank + 1) for rank, label in enumerate(found[:10], start=1))
        for found in ([labels[n] for n in order], sorted(labels, reverse=True))
    )
    ranks = [rank for rank, n in enumerate(order[:10], start=1) if labels[n] > 0]
    return gain / best, 1 / ranks[0] if ranks else 0.0


def test_many_documents_and_grades():
    draw = random.Random(0)
    for _ in range(50):
        labels = [draw.choice([0, 0, 0, 0, 1, 2]) for _ in range(draw.choice([draw.randint(2, 25), 150]))]
        labels[draw.randrange(len(labels))] = 3
        scores = draw.sample(range(1000), len(labels))
        order = sorted(range(len(labels)), key=lambda n: -scores[n])
        found = score_query(np.array(scores, float), np.array(labels, float))
        wanted = [n for n, label in enumerate(labels) if label > 0]
        recalls = (np.mean([n in order[:most] for n in wanted]) for most in (10, 100))
        assert found == pytest.approx((*by_definition(order, labels), *recalls))


def test_ties_count_as_scikit_learn_counts_them():
    draw = random.Random(1)
    for _ in range(50):
        labels = np.array([draw.choice([0, 0, 0, 1, 2]) for _ in range(draw.randint(2, 40))] + [1], float)
        scores = np.array([draw.randrange(5) for _ in labels], float)
        assert score_query(scores, labels)[0] == pytest.approx(ndcg_score(labels[None], scores[None], k=10))


def test_of_equal_scores_no_order_is_taken_for_granted():
    labels, scores = np.array([0.0, 1.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0, 0.0])
    orders = [(*first, 3) for first in itertools.permutations(range(3))]
    found = [by_definition(order, labels.tolist()) for order in orders]
    wanted = (np.mean([n for n, _ in found]), min(r for _, r in found), 1.0, 1.0)
    assert score_query(scores, labels) == pytest.approx(wanted)


def test_whole_queries_are_drawn():
    rows = documents(*[[1, 0, 0]] * 20)
    draw = KINDS[TASK.kind].draw
    found = draw(rows, 14)
    assert len(found) == 12 and [row.id for row in found] == sorted((row.id for row in found), key=int)
    assert all(row.text == found[n // 3 * 3].text for n, row in enumerate(found))
    assert len(draw(rows, 2)) == 3 and draw(rows, 60) == rows
