"""Scores of the ranked documents of queries: nDCG, reciprocal rank and recall. Every retrieval is scored by these.

The *relevance* of a document to a query is a label of 0 or more; documents with a label above 0 are relevant.
Documents are ranked by their scores, from the highest. Several documents with the same score are *tied*: they share a
range of ranks, and their order in it is arbitrary.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.rows.labelled_rows import LabelledRow

CUTOFF = 10
"""The metrics with `_at_10` in their names count the documents of the ranks 1 to 10."""
FURTHER_CUTOFF = 100
"""The metric `recall_at_100` counts the documents of the ranks 1 to 100."""


class QueryScores(NamedTuple):
    """Scores of one query, 0 to 1.

    Attributes:
        ndcg_at_10: nDCG of the first 10 documents.
        mrr_at_10: Reciprocal rank of the first relevant document; 0 beyond 10.
        recall_at_10: Share of the relevant documents among the first 10.
        recall_at_100: Share of the relevant documents among the first 100.
        accuracy_at_1: 1 if the first document is relevant, else 0.
    """

    ndcg_at_10: float
    mrr_at_10: float
    recall_at_10: float
    recall_at_100: float
    accuracy_at_1: float


RETRIEVAL_METRICS = QueryScores._fields
"""Names of the scores."""
NOTHING_RELEVANT = QueryScores(0.0, 0.0, 0.0, 0.0, 0.0)


def score_places(above: NDArray[np.int64], equal: NDArray[np.int64], gains: NDArray[np.float64]) -> QueryScores:
    """Return the scores of one query, by the ranks of its relevant documents.

    nDCG@10 = sum over the documents at the ranks 1 to 10 of relevance / log2(1 + rank), divided by the same sum of the
    best order. Documents with the same score are tied: nDCG and recall are means over all orders of tied documents, and
    the reciprocal rank and the accuracy are those of the worst order, in which the relevant ones come last.

    Args:
        above: For each relevant document, the number of documents with a higher score; `[relevant]`, one or more. A
            relevant document thus has one of the ranks above + 1 to above + equal.
        equal: For each relevant document, the number of documents with the same score, itself included, `[relevant]`.
        gains: Relevance of each relevant document, above 0, `[relevant]`.

    Source: Järvelin and Kekäläinen 2002 for nDCG, with the relevance itself as the gain, as in trec_eval; McSherry and
        Najork 2008 for means over orders.
    """
    # Sums of discounts: those of the ranks first to last add up to sums[last] - sums[first - 1].
    ranks = np.arange(1, CUTOFF + 1)
    discounts = 1 / np.log2(1 + ranks)
    sums_of_discounts = np.concatenate([[0.0], np.cumsum(discounts)])  # [CUTOFF + 1], from 0 ranks to 10.

    # A tied document has each of its ranks equally often, so its discount is their mean. Ranks beyond 10 count 0.
    rank_before_first = np.minimum(above, CUTOFF)
    last_rank = np.minimum(above + equal, CUTOFF)
    summed_discounts = sums_of_discounts[last_rank] - sums_of_discounts[rank_before_first]
    gain = (gains * summed_discounts / equal).sum()

    # The best order has the most relevant documents first.
    highest_gains = np.sort(gains)[::-1][:CUTOFF]
    best_gain = (highest_gains * discounts[: len(highest_gains)]).sum()
    ndcg = gain / best_gain

    # Of the documents that are tied with the best relevant one, the irrelevant ones come before it in the worst order.
    above_best = above.min()
    is_tied_with_best = above == above_best
    tied_documents = equal[is_tied_with_best][0]
    irrelevant_ties = tied_documents - is_tied_with_best.sum()
    first_rank = int(above_best + irrelevant_ties + 1)
    reciprocal_rank = 1 / first_rank if first_rank <= CUTOFF else 0.0

    return QueryScores(
        ndcg_at_10=float(ndcg),
        mrr_at_10=reciprocal_rank,
        recall_at_10=_recall(above, equal, CUTOFF),
        recall_at_100=_recall(above, equal, FURTHER_CUTOFF),
        accuracy_at_1=float(first_rank == 1),
    )


def _recall(above: NDArray[np.int64], equal: NDArray[np.int64], cutoff: int) -> float:
    """Return the share of the relevant documents within the first ranks, as the mean over all orders of tied documents.

    Args:
        above: See `score_places`.
        equal: See `score_places`.
        cutoff: The last rank that counts.
    """
    # A document has the ranks above + 1 to above + equal equally often; this many of them are within the cutoff.
    ranks_within = np.clip(cutoff - above, 0, equal)
    return float((ranks_within / equal).mean())


def score_query(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> QueryScores:
    """Return the scores of one query, by the scores that a model gives its documents; see `score_places`.

    Without a relevant document (a label above 0) all scores of the query are 0.

    Args:
        scores: The model's scores of the documents, `[documents]`; higher ones come first.
        labels: The relevance of the documents, 0 or more, `[documents]`.
    """
    is_relevant = labels > 0
    if not is_relevant.any():
        return NOTHING_RELEVANT
    relevant_scores = scores[is_relevant, None]  # [relevant, 1], compared with all scores, [documents]
    above = (scores > relevant_scores).sum(axis=1)
    equal = (scores == relevant_scores).sum(axis=1)
    return score_places(above, equal, gains=labels[is_relevant])


def queries_of(rows: Sequence[LabelledRow]) -> list[slice]:
    """Return a slice of the rows for each query: rows that follow each other and have the same query are its documents.

    The `text` of a row is the query, its `pair` the document.
    """
    starts = []
    for number, row in enumerate(rows):
        if number == 0 or row.text != rows[number - 1].text:
            starts.append(number)
    return [slice(start, end) for start, end in pairwise([*starts, len(rows)])]
