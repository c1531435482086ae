"""The untrained start has the better figure of two students, by each figure."""

import math

from limbeck.core.records import Agreement, Retrieval
from limbeck.evaluation.best_figures import best_agreement, best_retrieval, best_scores


def test_each_score_is_the_highest_one():
    copied = {"accuracy": 0.7, "f1": 0.6, "best_f1_threshold": 0.9}
    fitted = {"accuracy": 0.8, "f1": 0.5, "best_f1_threshold": 0.1}
    assert best_scores([copied, fitted]) == {"accuracy": 0.8, "f1": 0.6, "best_f1_threshold": 0.9}
    assert best_scores([copied]) == copied and best_scores([]) == {}


def test_a_score_that_is_not_defined_is_the_lowest():
    assert best_scores([{"spearman": math.nan}, {"spearman": -0.5}]) == {"spearman": -0.5}
    assert best_scores([{"spearman": -0.5}, {"spearman": None}]) == {"spearman": -0.5}
    assert best_agreement([Agreement(spearman=None), Agreement(spearman=-0.2)]).spearman == -0.2


def test_each_figure_of_a_retrieval_comes_with_its_own_interval():
    copied = Retrieval(mrr_at_10=0.4, ndcg_at_10=0.5, recall_at_1=0.2, recall_at_10=0.8, pool=500)
    copied = copied.model_copy(update={"interval": [0.3, 0.5], "intervals": {"ndcg_at_10": [0.4, 0.6]}})
    fitted = Retrieval(mrr_at_10=0.3, ndcg_at_10=0.6, recall_at_1=0.1, recall_at_10=0.9, pool=500)
    fitted = fitted.model_copy(update={"interval": [0.2, 0.4], "intervals": {"ndcg_at_10": [0.5, 0.7]}})
    best = best_retrieval([copied, fitted])
    assert (best.mrr_at_10, best.ndcg_at_10, best.recall_at_1, best.recall_at_10) == (0.4, 0.6, 0.2, 0.9)
    assert best.interval == [0.3, 0.5] and best.intervals == {"ndcg_at_10": [0.5, 0.7]} and best.pool == 500
    assert copied.intervals == {"ndcg_at_10": [0.4, 0.6]}, "the measured figures stay as they are"
