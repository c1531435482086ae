"""95 % intervals of figures on held-out rows, against the same draws scored by other libraries."""

import numpy as np
import pytest
import seqeval.metrics as seqeval
from pytrec_eval import RelevanceEvaluator
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score

from limbeck.core.intervals import RESAMPLES
from limbeck.kinds.kind import HeldOutRows
from limbeck.kinds.registry import KINDS

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def percentiles(score, groups):
    """Return the ends of the bootstrap over groups, which are drawn as limbeck draws them."""
    generator = np.random.default_rng(0)
    draws = [generator.integers(groups, size=groups) for _ in range(RESAMPLES)]
    return pytest.approx(np.percentile([score(draw) for draw in draws], [2.5, 97.5]), abs=1e-12)


@pytest.fixture
def generator():
    return np.random.default_rng(3)


def test_tagged_sentences_are_drawn_whole(generator):
    sentences = [generator.integers(len(TAGS), size=length) for length in generator.integers(1, 9, size=40)]
    predicted = [np.where(generator.random(len(gold)) < 0.7, gold, 0) for gold in sentences]
    rows = HeldOutRows(np.repeat(np.arange(40), list(map(len, sentences))), TAGS)
    kind = KINDS["token_classification"]
    found = kind.held_out_intervals(np.concatenate(predicted), np.concatenate(sentences), rows)

    def by_seqeval(score):
        def of_draw(draw):
            names = [[[TAGS[tag] for tag in tags[index]] for index in draw] for tags in (sentences, predicted)]
            return score(*names)

        return percentiles(of_draw, 40)

    def share_of_words(draw):
        return np.mean(np.concatenate([predicted[index] == sentences[index] for index in draw]))

    assert found["f1_entity"] == by_seqeval(lambda *tags: seqeval.f1_score(*tags, zero_division=0))
    assert found["recall_entity"] == by_seqeval(lambda *tags: seqeval.recall_score(*tags, zero_division=0))
    assert found["precision_entity"] == by_seqeval(lambda *tags: seqeval.precision_score(*tags, zero_division=0))
    assert found["accuracy"] == percentiles(share_of_words, 40)
    # The teacher's tags take the place of the labels.
    agreement = kind.held_out_agreement_interval(np.concatenate(predicted), np.concatenate(sentences), rows)
    assert agreement == found["f1_entity"]


def test_the_tags_of_words_without_entities_have_the_interval_of_their_share(generator):
    labels = generator.integers(3, size=60)
    predicted = np.where(generator.random(60) < 0.7, labels, 0)
    rows = HeldOutRows(np.repeat(np.arange(20), 3), ("noun", "verb", "other"))
    found = KINDS["token_classification"].held_out_intervals(predicted, labels, rows)
    is_right = (predicted == labels).reshape(20, 3)
    assert found == {"accuracy": percentiles(lambda draw: is_right[draw].mean(), 20)}


def test_the_documents_of_a_query_are_drawn_together(generator):
    student, teacher = generator.normal(size=(2, 30, 5))
    labels = (np.arange(5) == generator.integers(5, size=(30, 1))).astype(np.float64)
    rows = HeldOutRows(np.repeat(np.arange(30), 5))
    kind = KINDS["ranking"]
    found = kind.held_out_intervals(student.ravel(), labels.ravel(), rows)

    relevant = {str(query): {str(n): int(labels[query, n]) for n in range(5)} for query in range(30)}
    run = {str(query): {str(n): float(student[query, n]) for n in range(5)} for query in range(30)}
    scores = RelevanceEvaluator(relevant, {"ndcg_cut_10", "recip_rank"}).evaluate(run)
    for metric, name in {"ndcg_at_10": "ndcg_cut_10", "mrr_at_10": "recip_rank"}.items():
        values = np.array([scores[str(query)][name] for query in range(30)])
        assert found[metric] == percentiles(lambda draw, values=values: values[draw].mean(), 30)

    def correlation(draw):
        return spearmanr(student[draw].ravel(), teacher[draw].ravel()).statistic

    agreement = kind.held_out_agreement_interval(student.ravel(), teacher.ravel(), rows)
    assert agreement == percentiles(correlation, 30)


def test_rows_are_drawn_one_by_one(generator):
    labels = generator.integers(3, size=80)
    predicted = np.where(generator.random(80) < 0.7, labels, 0)
    rows = HeldOutRows(np.arange(80), ("a", "b", "c"))
    found = KINDS["classification"].held_out_intervals(predicted, labels, rows)
    assert found["accuracy"] == pytest.approx(
        percentiles(lambda draw: accuracy_score(labels[draw], predicted[draw]), 80).expected, abs=1e-6
    )

    values, other_values = generator.normal(size=(2, 50))
    found = KINDS["regression"].held_out_intervals(values, other_values, HeldOutRows(np.arange(50)))
    assert found["spearman"] == percentiles(lambda draw: spearmanr(values[draw], other_values[draw]).statistic, 50)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_single_group_has_no_interval(kind):
    rows = HeldOutRows(np.zeros(4, np.int64), TAGS)
    labels = np.arange(4)
    # Several classes of a row, or the start and the end of an answer.
    if kind in ("multi_label", "question_answering"):
        labels = np.array([[0, 1], [1, 0], [0, 1], [1, 1]])
    assert KINDS[kind].held_out_intervals(labels, labels, rows) == {}
    assert KINDS[kind].held_out_agreement_interval(labels, labels, rows) is None


def test_tags_that_are_all_right_have_no_interval_without_width():
    labels = np.tile([1, 2, 0, 3], 10)
    rows = HeldOutRows(np.repeat(np.arange(10), 4), TAGS)
    kind = KINDS["token_classification"]
    assert kind.held_out_intervals(labels, labels, rows) == {}
    assert kind.held_out_agreement_interval(labels, labels, rows) is None


def test_an_undefined_score_has_no_interval():
    constant = np.ones(30)
    rows = HeldOutRows(np.arange(30))
    assert KINDS["regression"].held_out_intervals(constant, np.arange(30.0), rows) == {}
    assert KINDS["ranking"].held_out_intervals(constant, np.full(30, np.nan), rows) == {}
