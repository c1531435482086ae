"""Queries that look for their documents among all of a split, by inner products of vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.ranking_scores import RETRIEVAL_METRICS, score_places

_SCORES_AT_ONCE = 2**24
"""Inner products of queries and documents in memory."""


@dataclass(frozen=True)
class Search:
    """Queries and the documents that they look for.

    Attributes:
        queries: Texts of the queries, one for each id; each once where they have none.
        documents: Texts of the documents, likewise.
        relevant: For each query the relevance of its documents by their number, all above 0.
        same: By the number of a query that of the document that it is itself, which is not among what it finds.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: tuple[Mapping[int, float], ...]
    same: Mapping[int, int]

    @classmethod
    def of(cls, rows: Sequence[LabelledRow], where: str) -> "Search":
        """Gather the rows of a split.

        Args:
            rows: Of a retrieval, see `LabelledRow`.
            where: Names the split, for the message.

        Raises:
            CorpusError: if there is nothing to look for, or nothing to look through.
        """
        document_numbers: dict[str, int] = {}
        document_texts: list[str] = []
        query_texts: list[str] = []
        relevance_of_query: dict[str, dict[int, float]] = {}
        for row in rows:
            query, document = row.keys
            if document not in document_numbers:
                document_numbers[document] = len(document_texts)
                document_texts.append(row.pair or "")
            number = document_numbers[document]
            if not row.text:
                continue
            if query not in relevance_of_query:
                relevance_of_query[query] = {}
                query_texts.append(row.text)
            relevance = relevance_of_query[query]
            if isinstance(row.label, int | float) and row.label > 0:
                relevance[number] = max(float(row.label), relevance.get(number, 0.0))
        if not any(relevance_of_query.values()) or len(document_texts) < 2:
            raise CorpusError(
                f"{where} has {len(query_texts)} queries and {len(document_texts)} documents; give at least one query "
                "with a relevant document, and at least two documents."
            )

        # Some collections ask with documents of their own (ArguAna), which have the id of the query.
        same: dict[int, int] = {}
        if rows[0].ids is not None:
            for place, (query, relevance) in enumerate(relevance_of_query.items()):
                number = document_numbers.get(query, -1)
                if number >= 0 and number not in relevance and document_texts[number].endswith(query_texts[place]):
                    same[place] = number
        return cls(tuple(query_texts), tuple(document_texts), tuple(relevance_of_query.values()), same)

    def score(self, queries: Tensor, documents: Tensor) -> dict[str, float]:
        """Return the means over queries of the scores of `score_places`, by inner products.

        Args:
            queries: Their vectors, of length one for cosines, `[queries, width]`.
            documents: Those of the documents, `[documents, width]`.
        """
        scores = np.zeros((len(self.queries), len(RETRIEVAL_METRICS)))
        at_once = max(1, _SCORES_AT_ONCE // len(documents))
        for part in torch.arange(len(queries)).split(at_once):
            products: NDArray[np.float32] = (queries[part] @ documents.T).numpy()
            for number, row in zip(part.tolist(), products, strict=True):
                if number in self.same:
                    row[self.same[number]] = -np.inf
                relevance = self.relevant[number]
                if relevance:
                    relevant = row[list(relevance), None]
                    gains = np.array(list(relevance.values()))
                    scores[number] = score_places((row > relevant).sum(1), (row == relevant).sum(1), gains)
        return dict(zip(RETRIEVAL_METRICS, scores.mean(0).tolist(), strict=True))
