"""Ranking: the documents of a query are read and scored one by one, by a cross-encoder."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from limbeck.core.blocks import counted
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import is_missing, parse_value
from limbeck.corpus.rows.labelled_rows import LabelledRow, by_query
from limbeck.errors import CorpusError
from limbeck.kinds import class_scores
from limbeck.kinds.drawing import DRAW
from limbeck.kinds.kind import LabelTerm, Loss, Metric
from limbeck.kinds.losses import relevance_loss
from limbeck.kinds.ranking_scores import queries_of, score_query
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.regression import ValueKind
from limbeck.kinds.task import Predictions, Task


def mean_over_queries(name: str) -> Metric:
    """Return a metric: the mean over queries of one of the scores of `score_query`, named in `RETRIEVAL_METRICS`."""

    def metric(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
        scores = np.asarray(predictions, np.float64)
        labels = class_scores.labels_of(rows).astype(np.float64)
        figures = []
        for query in queries_of(rows):
            query_scores = score_query(scores[query], labels[query])
            figures.append(getattr(query_scores, name))
        return float(np.mean(figures))

    return metric


@register_as_kind()
class Ranking(ValueKind):
    """The relevance of each document to its query."""

    name = "ranking"
    metrics: Mapping[str, Metric] = {name: mean_over_queries(name) for name in ("ndcg_at_10", "mrr_at_10")}
    has_queries = True
    usage = replace(ValueKind.usage, puts_in_order=True)

    def read(self, row: PlacedRow, source: RowSource) -> Sequence[LabelledRow]:
        """Return a row for each document of a query."""
        columns = source.columns
        source.require(row, [columns.query, *columns.documents])
        query = source.text(row, columns.query)
        row_id = source.row_id(row, columns.id)
        documents = read_documents(row, columns.documents, columns.label)
        if query is None:
            return []

        rows = []
        for place, document in enumerate(documents):
            text = source.document(document.text, row.where)
            if text is None:
                continue
            label = None
            if source.labelled:
                label = source.relevance(document.relevance, row)
            document_id = row_id if len(documents) == 1 else f"{row_id}.{place}"
            rows.append(LabelledRow(document_id, query, text, label, language=source.language))
        if not rows:
            source.report.note("query without a document, left out", row.where)
        return rows

    def arrange(self, rows: Sequence[LabelledRow]) -> Sequence[LabelledRow]:
        """Return the documents of each query together."""
        return by_query(rows)

    def draw(self, rows: Sequence[LabelledRow], most: int | None) -> Sequence[LabelledRow]:
        """Return whole queries, drawn in turn as long as they have no more rows than asked for."""
        if most is None or len(rows) <= most:
            return rows
        queries = queries_of(rows)
        random.Random(DRAW).shuffle(queries)

        # At least one query, even if it alone has more rows.
        chosen = queries[:1]
        count = len(rows[queries[0]])
        for query in queries[1:]:
            count += len(rows[query])
            if count > most:
                break
            chosen.append(query)

        # In the order of the split.
        drawn: list[LabelledRow] = []
        for query in sorted(chosen, key=lambda query: query.start):
            drawn += rows[query]
        return drawn

    def loss(self, weights: Sequence[float] | None) -> Loss | None:
        """Return the binary cross entropy of scores with relevance."""
        return relevance_loss

    def hard_label(self) -> LabelTerm | None:
        """Return nothing: rankings learn the teacher's scores, and need no labels."""
        return None


class Document(NamedTuple):
    """A document of a query.

    Attributes:
        text: Its text.
        relevance: Its relevance to the query, 0 or more; None where the row does not say it.
    """

    text: str
    relevance: float | None


def read_documents(row: PlacedRow, columns: Sequence[str], label_column: str) -> list[Document]:
    """Return a query's documents, with the relevance of each as far as the row says it.

    Args:
        row: The row of a ranking data set.
        columns: Columns of the documents, each a text or a list of texts. Of several, the first holds the relevant
            ones: their relevance is 1, that of all others 0.
        label_column: Column of the relevance, a number or as many as documents; a row may lack it. It goes before what
            columns say. A document with a relevance below 0 is not relevant, as trec_eval counts it.

    Raises:
        CorpusError: if a document is no text, or the labels are not as many as documents.
    """
    documents: list[Document] = []
    for place, column in enumerate(columns):
        value: Any = row.values[column]
        if value is None:
            continue
        relevance = None
        if len(columns) > 1:
            relevance = 1.0 if place == 0 else 0.0
        texts = value if isinstance(value, list | tuple) else [value]
        for text in texts:
            if not isinstance(text, str):
                raise CorpusError(
                    f"{row.where} has a document that is not text in its column '{column}': {text!r:.40}."
                )
            documents.append(Document(text, relevance))

    # Labels of the row replace the relevance by columns.
    label: Any = row.values.get(label_column)
    if is_missing(label):
        return documents
    labels = list(label) if isinstance(label, list | tuple) else [label]
    if len(labels) != len(documents):
        raise CorpusError(
            f"{row.where} has {counted(len(documents), 'document')} and {counted(len(labels), 'label')} in its column "
            f"'{label_column}': give each document a label, in the same order."
        )
    relevances = [max(0.0, parse_value(value, row.where)) for value in labels]
    return [Document(document.text, label) for document, label in zip(documents, relevances, strict=True)]
