"""`Search`: queries that look for their documents among all of a split, by inner products of vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.core import intervals
from limbeck.core.progress import Report, no_progress
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.ranking_scores import RETRIEVAL_METRICS, score_places

_PRODUCTS_AT_ONCE = 2**24
"""Most inner products of queries and documents that are in memory at a time."""


@dataclass(frozen=True)
class Search:
    """Queries and the documents that they look for.

    A query or document is referred to by its number, which is its index among the texts.

    Attributes:
        queries: Texts of the distinct queries: those with different ids, or different texts where rows have no ids.
        documents: Texts of the distinct documents, likewise.
        relevance: For each query, number of a document to its relevance; irrelevant documents are left out, so that all
            values are above 0.
        own_documents: Number of a query to the number of the document that has the same text and id. A query must not
            find itself, so this document is excluded from its results.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevance: tuple[Mapping[int, float], ...]
    own_documents: Mapping[int, int]

    @classmethod
    def of(cls, rows: Sequence[LabelledRow], where: str) -> "Search":
        """Gather the distinct queries and documents of a split, and the relevance of one to the other.

        Args:
            rows: Rows of a retrieval: the query as `text`, the document as `pair`, the relevance as `label`.
            where: The split in words, for the message.

        Raises:
            CorpusError: if there is nothing to look for, or nothing to look through.
        """
        documents: list[str] = []
        number_of_document: dict[str, int] = {}
        queries: list[str] = []
        relevance_of_query: dict[str, dict[int, float]] = {}
        for row in rows:
            query_key, document_key = row.keys
            if document_key not in number_of_document:
                number_of_document[document_key] = len(documents)
                documents.append(row.pair or "")
            if not row.text:
                # A row without a query adds a document that is searched, and that no query names.
                continue
            if query_key not in relevance_of_query:
                relevance_of_query[query_key] = {}
                queries.append(row.text)
            if isinstance(row.label, int | float) and row.label > 0:
                number = number_of_document[document_key]
                relevance = relevance_of_query[query_key]
                relevance[number] = max(float(row.label), relevance.get(number, 0.0))

        has_relevant = any(relevance_of_query.values())
        if not has_relevant or len(documents) < 2:
            raise CorpusError(
                f"{where} has {len(queries)} queries and {len(documents)} documents; give at least one query "
                "with a relevant document, and at least two documents."
            )
        # Either all rows have ids or none. Without ids a query that is a document cannot be told from another text.
        own_documents: dict[int, int] = {}
        if rows[0].ids is not None:
            own_documents = _own_documents(queries, documents, relevance_of_query, number_of_document)
        return cls(tuple(queries), tuple(documents), tuple(relevance_of_query.values()), own_documents)

    def score(self, queries: Tensor, documents: Tensor) -> dict[str, float]:
        """Return the metrics of the retrieval by name, each the mean over queries; see `score_queries`."""
        return mean_over_queries(self.score_queries(queries, documents))

    def score_queries(self, queries: Tensor, documents: Tensor, report: Report = no_progress) -> NDArray[np.float64]:
        """Return the metrics of each query, `[queries, metrics]`, in the order of `RETRIEVAL_METRICS`.

        Documents are ranked by the inner products of their vectors with the query's.

        Args:
            queries: Vectors of the queries, `[queries, width]`; of length one where cosines are wanted.
            documents: Vectors of the documents, `[documents, width]`.
            report: Receives the share of the queries that are scored.
        """
        # A query without relevant documents keeps its zeros.
        scores = np.zeros((len(self.queries), len(RETRIEVAL_METRICS)))
        queries_at_once = max(1, _PRODUCTS_AT_ONCE // len(documents))
        for query_numbers in torch.arange(len(queries)).split(queries_at_once):
            report(int(query_numbers[0]) / len(queries), "search")
            products: NDArray[np.float32] = (queries[query_numbers] @ documents.T).numpy()  # [queries, documents]
            for number, products_of_query in zip(query_numbers.tolist(), products, strict=True):
                if number in self.own_documents:
                    # Below all other documents: a query must not find itself.
                    products_of_query[self.own_documents[number]] = -np.inf
                relevance = self.relevance[number]
                if not relevance:
                    continue
                # For each relevant document: how many documents have a higher product, and how many the same one.
                relevant_products = products_of_query[list(relevance), None]  # [relevant, 1]
                above = (products_of_query > relevant_products).sum(1)
                equal = (products_of_query == relevant_products).sum(1)
                gains = np.array(list(relevance.values()))
                scores[number] = score_places(above, equal, gains)
        return scores


def mean_over_queries(scores: NDArray[np.float64]) -> dict[str, float]:
    """Return the metrics of a retrieval by name, each the mean over queries.

    Args:
        scores: The scores of each query, as `Search.score_queries` returns them.
    """
    return dict(zip(RETRIEVAL_METRICS, scores.mean(0).tolist(), strict=True))


def intervals_over_queries(scores: NDArray[np.float64], metrics: Sequence[str]) -> dict[str, list[float]]:
    """Return the 95 % intervals of the means over queries, by metric, as far as they have one.

    Args:
        scores: The scores of each query, as `Search.score_queries` returns them.
        metrics: Names of the metrics, some of `RETRIEVAL_METRICS`.
    """
    interval_of_metric = {}
    for metric in metrics:
        ends = intervals.of_mean_share(scores[:, RETRIEVAL_METRICS.index(metric)].tolist())
        if ends is not None:
            interval_of_metric[metric] = list(ends)
    return interval_of_metric


def _own_documents(
    queries: Sequence[str],
    documents: Sequence[str],
    relevance_of_query: Mapping[str, Mapping[int, float]],
    number_of_document: Mapping[str, int],
) -> dict[int, int]:
    """Return the number of a query to the number of the document that is its own text.

    In some collections (ArguAna) the queries are documents of the collection, with the same ids.

    Args:
        queries: Texts of the queries.
        documents: Texts of the documents.
        relevance_of_query: Relevance of documents by the id of each query, in the order of `queries`.
        number_of_document: Number of each document by its id.
    """
    own_documents = {}
    for query_number, (query_id, relevance) in enumerate(relevance_of_query.items()):
        if query_id not in number_of_document:
            continue
        document_number = number_of_document[query_id]
        # The document may have a title before the text of the query.
        has_text_of_query = documents[document_number].endswith(queries[query_number])
        if has_text_of_query and document_number not in relevance:
            own_documents[query_number] = document_number
    return own_documents
