"""`Search`: queries that look for their documents among all of a split, by inner products of vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.ranking_scores import RETRIEVAL_METRICS, score_places

_PRODUCTS_AT_ONCE = 2**24
"""Inner products of queries and documents that are in memory."""


@dataclass(frozen=True)
class Search:
    """Queries and the documents that they look for.

    Queries and documents are known by their numbers, the places in the lists of their texts.

    Attributes:
        queries: Texts of the queries, one for each id; each once where they have none.
        documents: Texts of the documents, likewise.
        relevance: For each query the relevance of its documents by their number, all above 0.
        own_documents: Query to the document that is its own text, which is not among what it finds.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevance: tuple[Mapping[int, float], ...]
    own_documents: Mapping[int, int]

    @classmethod
    def of(cls, rows: Sequence[LabelledRow], where: str) -> "Search":
        """Gather the rows of a split.

        Args:
            rows: Of a retrieval, see `LabelledRow`.
            where: Names the split, for the message.

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
                # A document that no query names: it is looked through alone.
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
        own_documents: dict[int, int] = {}
        if rows[0].ids is not None:
            own_documents = _own_documents(queries, documents, relevance_of_query, number_of_document)
        return cls(tuple(queries), tuple(documents), tuple(relevance_of_query.values()), own_documents)

    def score(self, queries: Tensor, documents: Tensor) -> dict[str, float]:
        """Return the means over queries of the scores of `score_places`, by inner products.

        Args:
            queries: Their vectors, of length one for cosines, `[queries, width]`.
            documents: Those of the documents, `[documents, width]`.
        """
        # A query without relevant documents scores 0.
        scores = np.zeros((len(self.queries), len(RETRIEVAL_METRICS)))
        queries_at_once = max(1, _PRODUCTS_AT_ONCE // len(documents))
        for numbers in torch.arange(len(queries)).split(queries_at_once):
            products: NDArray[np.float32] = (queries[numbers] @ documents.T).numpy()
            for number, row in zip(numbers.tolist(), products, strict=True):
                if number in self.own_documents:
                    row[self.own_documents[number]] = -np.inf
                relevance = self.relevance[number]
                if relevance:
                    relevant_products = row[list(relevance), None]
                    above = (row > relevant_products).sum(1)
                    equal = (row == relevant_products).sum(1)
                    scores[number] = score_places(above, equal, np.array(list(relevance.values())))
        return dict(zip(RETRIEVAL_METRICS, scores.mean(0).tolist(), strict=True))


def _own_documents(
    queries: Sequence[str],
    documents: Sequence[str],
    relevance_of_query: Mapping[str, Mapping[int, float]],
    number_of_document: Mapping[str, int],
) -> dict[int, int]:
    """Return the documents that are their query's own text, by the number of the query.

    Some collections ask with documents of their own (ArguAna), which have the id of the query.

    Args:
        queries: Their texts.
        documents: Their texts.
        relevance_of_query: By the id of each query, in the order of `queries`.
        number_of_document: By the id of each document.
    """
    own_documents = {}
    for place, (query_id, relevance) in enumerate(relevance_of_query.items()):
        if query_id not in number_of_document:
            continue
        number = number_of_document[query_id]
        # The document may have a title before the text of the query.
        has_its_text = documents[number].endswith(queries[place])
        if has_its_text and number not in relevance:
            own_documents[place] = number
    return own_documents
