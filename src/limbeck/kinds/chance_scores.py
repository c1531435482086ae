"""Scores at chance: what a model reaches that does not read its rows.

Such a model gives all rows the answer that scores best, or draws answers as often as the labels have them. A teacher
whose score is not above chance cannot do the task, so that a share of its score tells nothing about a student.
"""

from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

from limbeck.kinds.ranking_scores import CUTOFF, score_query

_SMALLEST_SUM = 1e-12
"""In place of 0 where rows without any class would divide by it."""


def chance_of_classes(labels: NDArray[np.int64], classes: int, positive: int | None) -> dict[str, float]:
    """Return the scores of the best guesser in a task with one class a row, by metric.

    A guesser does not read the rows. It gives all of them the same class, or draws classes as often as they occur.
    Matthews' correlation, which is then 0, is left out.

    Args:
        labels: The number of the class of each row, `[rows]`.
        classes: The number of classes.
        positive: The class that `f1` is of; None where there is none.
    """
    if len(labels) == 0:
        return {}
    shares = np.bincount(labels, minlength=classes) / len(labels)  # [classes]
    present = shares[shares > 0]
    largest = float(present.max())
    # The means over the classes that rows have. A constant answer has the F1 of its class, and 0 for all others. Drawn
    # answers hit a class as often as it occurs, so that its share is its F1.
    f1_of_constant = _f1_of_constant(largest)
    macro_of_constant = f1_of_constant / len(present)
    macro_of_drawn = 1.0 / len(present)  # The shares add up to 1.
    weighted_of_constant = largest * f1_of_constant
    weighted_of_drawn = float((present**2).sum())
    chance = {
        "accuracy": largest,
        "micro_f1": largest,
        "macro_f1": max(macro_of_constant, macro_of_drawn),
        "weighted_f1": max(weighted_of_constant, weighted_of_drawn),
    }
    if positive is not None:
        chance["f1"] = _f1_of_constant(float(shares[positive]))
    return chance


def chance_of_flags(labels: NDArray[np.int64]) -> dict[str, float]:
    """Return the scores of the best guesser in a task with any number of classes a row, by metric.

    A guesser does not read the rows, and gives all of them the same classes.

    Args:
        labels: 1 or 0 for each class, `[rows, classes]`.
    """
    shares = labels.mean(axis=0)  # [classes]
    f1_of_classes = [_f1_of_constant(float(share)) for share in shares]
    weights = shares / max(shares.sum(), _SMALLEST_SUM)

    # The micro F1 of rows that all get the m most frequent classes, for the best m.
    most_frequent_first = np.sort(shares)[::-1]
    numbers_of_classes = np.arange(1, len(shares) + 1)
    hits = np.cumsum(most_frequent_first)
    micro_f1 = 2 * hits / (numbers_of_classes + shares.sum())

    _, counts = np.unique(labels, axis=0, return_counts=True)
    return {
        "micro_f1": float(micro_f1.max()),
        "macro_f1": float(np.mean(f1_of_classes)),
        "weighted_f1": float((weights * f1_of_classes).sum()),
        # All rows get the classes that most rows have.
        "accuracy": float(counts.max() / len(labels)),
        "mean_average_precision": float(shares.mean()),
    }


def chance_of_answers(have_answers: NDArray[np.bool_]) -> dict[str, float]:
    """Return exact match and F1 of no answer to every question: the share of questions without an answer.

    Args:
        have_answers: Whether each question has an answer, `[rows]`.
    """
    share = float((~have_answers).mean())
    return {"exact_match": share, "f1_answer": share}


def chance_of_queries(labels_of_queries: Sequence[NDArray[np.float64]]) -> dict[str, float]:
    """Return nDCG@10 and MRR@10 of documents in a random order, as means over queries.

    Args:
        labels_of_queries: For each query the relevance of its documents, `[documents]`.
    """
    gains = []
    ranks = []
    for labels in labels_of_queries:
        # Documents with equal scores have the mean nDCG over all of their orders.
        gains.append(score_query(np.zeros(len(labels)), labels).ndcg_at_10)
        ranks.append(_reciprocal_rank(documents=len(labels), relevant=int((labels > 0).sum())))
    return {"ndcg_at_10": float(np.mean(gains)), "mrr_at_10": float(np.mean(ranks))}


def _reciprocal_rank(documents: int, relevant: int) -> float:
    """Return the reciprocal rank of the first relevant document, as the mean over all orders of the documents.

    Ranks beyond 10 count 0.
    """
    if relevant == 0:
        return 0.0
    mean = 0.0
    for rank in range(1, min(CUTOFF, documents) + 1):
        # In these choices of ranks for the relevant documents, this rank is the first: all others come later.
        choices_with_this_first = comb(documents - rank, relevant - 1)
        probability = choices_with_this_first / comb(documents, relevant)
        mean += probability / rank
    return mean


def _f1_of_constant(share: float) -> float:
    """Return the F1 of a class that is given to all rows, of which a share has it."""
    return 2 * share / (1 + share)
