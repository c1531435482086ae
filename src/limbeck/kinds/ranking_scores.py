"""Scores of the ranked documents of queries: nDCG, reciprocal rank and recall. Every retrieval is scored by these.

The *relevance* of a document to a query is a label of 0 or more; documents with a label above 0 are relevant.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.rows.labelled_rows import LabelledRow

CUTOFF = 10
"""Ranks that metrics look at."""
FURTHER_CUTOFF = 100
"""Ranks that a further recall looks at."""


class QueryScores(NamedTuple):
    """Scores of one query, 0 to 1.

    Attributes:
        ndcg_at_10: nDCG of the first 10 documents.
        mrr_at_10: Reciprocal rank of the first relevant document; 0 beyond 10.
        recall_at_10: Share of the relevant documents among the first 10.
        recall_at_100: Share of the relevant documents among the first 100.
    """

    ndcg_at_10: float
    mrr_at_10: float
    recall_at_10: float
    recall_at_100: float


RETRIEVAL_METRICS = QueryScores._fields
"""Names of the scores."""
NOTHING_RELEVANT = QueryScores(0.0, 0.0, 0.0, 0.0)


def score_places(above: NDArray[np.int64], equal: NDArray[np.int64], gains: NDArray[np.float64]) -> QueryScores:
    """Return the scores of one query, by the places of its relevant documents.

    The gain of a document is its relevance, discounted by log2(1 + rank). Of documents with equal scores nDCG and
    recall are the mean over their orders, and the reciprocal rank that of the worst.

    Args:
        above: The number of documents with a higher score than each relevant one, `[relevant]`, one or more.
        equal: The number of documents with the same score, itself included, `[relevant]`.
        gains: Relevance of each, above 0, `[relevant]`.

    Source: Järvelin and Kekäläinen 2002 for nDCG, with linear gains as trec_eval has them; the orders of equals as
        McSherry and Najork 2008.
    """
    # Discounts of the ranks 1 to 10, and their sums: the discounts of the ranks i to j add up to sums[j] - sums[i - 1].
    ranks = np.arange(1, CUTOFF + 1)
    discounts = 1 / np.log2(1 + ranks)
    sums_of_discounts = np.concatenate([[0.0], np.cumsum(discounts)])

    # A document stands at any of the ranks of its score alike: its discount is their mean. Ranks beyond 10 have none.
    ranks_before = np.minimum(above, CUTOFF)
    last_rank = np.minimum(above + equal, CUTOFF)
    discounts_of_ranks = sums_of_discounts[last_rank] - sums_of_discounts[ranks_before]
    gain = (gains * discounts_of_ranks / equal).sum()
    highest_gains = np.sort(gains)[::-1][:CUTOFF]
    best_gain = (highest_gains * discounts[: len(highest_gains)]).sum()
    ndcg = gain / best_gain

    # The first relevant document stands behind those of its score that are not relevant.
    is_highest = above == above.min()
    not_relevant = equal[is_highest][0] - is_highest.sum()
    first_rank = int(above.min() + not_relevant + 1)
    reciprocal_rank = 1 / first_rank if first_rank <= CUTOFF else 0.0

    return QueryScores(
        ndcg_at_10=float(ndcg),
        mrr_at_10=reciprocal_rank,
        recall_at_10=_recall(above, equal, CUTOFF),
        recall_at_100=_recall(above, equal, FURTHER_CUTOFF),
    )


def _recall(above: NDArray[np.int64], equal: NDArray[np.int64], cutoff: int) -> float:
    """Return the share of the relevant documents within the first ranks, the mean over the orders of equal scores."""
    # Of the ranks of a document's score, these are within the cutoff.
    ranks_within = np.clip(cutoff - above, 0, equal)
    return float((ranks_within / equal).mean())


def score_query(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> QueryScores:
    """Return the scores of one query's documents, see `score_places`.

    Without a relevant document (a label above 0) all are 0, with one document alone that is relevant 1.

    Args:
        scores: The scores of the documents, `[documents]`.
        labels: Their relevance, 0 or more, `[documents]`.
    """
    is_relevant = labels > 0
    if not is_relevant.any():
        return NOTHING_RELEVANT
    relevant_scores = scores[is_relevant, None]  # [relevant, 1], compared with all scores, [documents]
    above = (scores > relevant_scores).sum(axis=1)
    equal = (scores == relevant_scores).sum(axis=1)
    return score_places(above, equal, gains=labels[is_relevant])


def queries_of(rows: Sequence[LabelledRow]) -> list[slice]:
    """Return the places of each query's documents: consecutive rows of the same query."""
    starts = []
    for number, row in enumerate(rows):
        if number == 0 or row.text != rows[number - 1].text:
            starts.append(number)
    return [slice(start, end) for start, end in pairwise([*starts, len(rows)])]
