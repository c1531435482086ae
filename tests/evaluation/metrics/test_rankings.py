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
from limbeck.kinds.scoring import intervals_of, score

TASK = TaskDefinition(name="ranks", type="ranking", files={"train": "a.jsonl", "validation": "b.jsonl"}).task


def rows_of_queries(*labels_of_queries):
    """Return rows of queries, of which each has a document for each of its labels."""
    rows = []
    for query, labels in enumerate(labels_of_queries):
        for label in labels:
            rows.append(LabelledRow(str(len(rows)), text=f"query {query}", pair="document", label=label))
    return rows


def test_means_over_queries():
    rows = rows_of_queries([0, 1, 0], [1, 0], [0, 0], [2.0], [0])
    # The relevant document is second of three; first of two; not there; alone; not there.
    figures = score(TASK, "validation", rows, [3.0, 2.0, -1.0, 0.5, 0.4, 9.0, 8.0, 0.0, 0.0])
    assert figures["ndcg_at_10"] == pytest.approx((1 / math.log2(3) + 1 + 0 + 1 + 0) / 5)
    assert figures["mrr_at_10"] == pytest.approx((1 / 2 + 1 + 0 + 1 + 0) / 5)
    assert len(figures) == 2


def test_intervals_are_over_queries():
    """Documents of one query are alike, so that three queries of two documents each are three values."""
    rows = rows_of_queries([0, 1], [1, 0], [0, 1])
    predictions = [3.0, 2.0, 3.0, 2.0, 1.0, 3.0]
    found = intervals_of(score(TASK, "validation", rows, predictions), TASK, rows, predictions)
    for name, values in {"ndcg_at_10": [1 / math.log2(3), 1, 1], "mrr_at_10": [1 / 2, 1, 1]}.items():
        low = np.mean(values) - 1.959964 * np.std(values, ddof=1) / math.sqrt(3)
        assert found[name] == pytest.approx([low, 1.0])


def test_rows_are_counted_as_queries_and_pairs():
    rows = rows_of_queries(*[[0, 1, 0], [1, 0], [0, 1]] * 10)
    assert KINDS["ranking"].size(rows) == "30 queries (70 pairs)"
    assert KINDS["ranking"].count(rows) == (30, "query")


def gain_at_10(labels):
    """Return the discounted gain of documents in this order."""
    return sum(label / math.log2(rank + 1) for rank, label in enumerate(labels[:10], start=1))


def by_definition(order, labels):
    """Return nDCG and reciprocal rank of an order of documents, at 10."""
    ordered_labels = [labels[document] for document in order]
    ndcg = gain_at_10(ordered_labels) / gain_at_10(sorted(labels, reverse=True))
    for rank, label in enumerate(ordered_labels[:10], start=1):
        if label > 0:
            return ndcg, 1 / rank
    return ndcg, 0.0


def test_many_documents_and_grades():
    rng = random.Random(0)
    for _ in range(50):
        count = rng.choice([rng.randint(2, 25), 150])
        labels = [rng.choice([0, 0, 0, 0, 1, 2]) for _ in range(count)]
        labels[rng.randrange(count)] = 3
        scores = rng.sample(range(1000), count)

        order = sorted(range(count), key=lambda document: -scores[document])
        relevant = [document for document, label in enumerate(labels) if label > 0]
        recall_at_10 = np.mean([document in order[:10] for document in relevant])
        recall_at_100 = np.mean([document in order[:100] for document in relevant])
        accuracy = float(labels[order[0]] > 0)
        expected = (*by_definition(order, labels), recall_at_10, recall_at_100, accuracy)
        assert score_query(np.array(scores, float), np.array(labels, float)) == pytest.approx(expected)


def test_ties_count_as_scikit_learn_counts_them():
    rng = random.Random(1)
    for _ in range(50):
        grades = [rng.choice([0, 0, 0, 1, 2]) for _ in range(rng.randint(2, 40))]
        labels = np.array([*grades, 1], float)
        scores = np.array([rng.randrange(5) for _ in labels], float)
        expected = ndcg_score(labels[None], scores[None], k=10)
        assert score_query(scores, labels).ndcg_at_10 == pytest.approx(expected)


def test_of_equal_scores_no_order_is_taken_for_granted():
    labels = np.array([0.0, 1.0, 0.0, 2.0])
    scores = np.array([1.0, 1.0, 1.0, 0.0])
    # The first three documents may stand in any order; the last one is last.
    results = [by_definition((*first_three, 3), labels.tolist()) for first_three in itertools.permutations(range(3))]
    mean_ndcg = np.mean([ndcg for ndcg, _ in results])
    worst_reciprocal_rank = min(reciprocal_rank for _, reciprocal_rank in results)
    assert score_query(scores, labels) == pytest.approx((mean_ndcg, worst_reciprocal_rank, 1.0, 1.0, 0.0))


def test_whole_queries_are_drawn():
    rows = rows_of_queries(*[[1, 0, 0]] * 20)
    draw = KINDS[TASK.kind].draw
    drawn = draw(rows, 14)
    assert len(drawn) == 12
    assert [row.id for row in drawn] == sorted((row.id for row in drawn), key=int)
    for number, row in enumerate(drawn):
        first_of_query = drawn[number // 3 * 3]
        assert row.text == first_of_query.text
    assert len(draw(rows, 2)) == 3
    assert draw(rows, 60) == rows
