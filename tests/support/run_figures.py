"""The figures of a run on held-out text, as its record has them."""

from limbeck.evaluation.passages import SENTENCE_IN_PASSAGES
from limbeck.evaluation.similarity_strata import STRATIFIED_SIMILARITIES


def retrieval(value: float, pool: int):
    metrics = ("mrr_at_10", "recall_at_1", "ndcg_at_10", "recall_at_10")
    return dict.fromkeys(metrics, value) | {
        "pool": pool, "interval": [value - 0.02, value + 0.02], "measure": SENTENCE_IN_PASSAGES
    }  # fmt: skip


def evaluation(*, teacher: float = 0.8, pool: int = 500, sentences: int = 900, documents: int = 40):
    agreement = {"pairs": 1500, "documents": documents, "measure": STRATIFIED_SIMILARITIES}
    return {
        "teacher": {"retrieval": retrieval(teacher, pool)},
        "student": {"retrieval": retrieval(0.6, pool)},
        "agreement": {**agreement, "spearman": 0.7, "sentences": sentences},
        "start": {
            "summary": "Starts from teacher layers 1, 6.",
            "retrieval": retrieval(0.4, pool),
            "agreement": {**agreement, "spearman": 0.3, "sentences": sentences},
        },
    }
