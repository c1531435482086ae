"""Retrieval: queries look for their documents among all documents of a split, by sentence vectors without training.

A `LabelledRow` has a query as `text`, a document as `pair` and the document's relevance to the query as `label`. A row
with an empty query is a document that is searched although no row relates it to a query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.kinds.drawing import draw
from limbeck.kinds.kind import Metric
from limbeck.kinds.ranking import Document, mean_over_queries, read_documents
from limbeck.kinds.ranking_scores import RETRIEVAL_METRICS
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.regression import ValueKind


@register_as_kind()
class Retrieval(ValueKind):
    """The relevance of documents to queries; a document without a row for a query is not relevant to it."""

    name = "retrieval"
    metrics: Mapping[str, Metric] = {name: mean_over_queries(name) for name in RETRIEVAL_METRICS}
    has_queries = True

    def read(self, row: PlacedRow, source: RowSource) -> Sequence[LabelledRow]:
        """Return a row for each document of a query, relevant where the row has no column that says otherwise."""
        columns = source.columns
        source.require(row, [columns.query, *columns.documents])
        query = source.text(row, columns.query)
        row_id = source.row_id(row, columns.id)
        documents = read_documents(row, columns.documents, columns.label)
        if query is None:
            return []
        if not documents:
            source.report.note("query without a document, left out", row.where)
        if not query.strip():
            source.report.note("query without a text, left out", row.where)
            return []
        # A paragraph that does not answer a question (SQuAD 2.0) is searched, but the question is not asked: a row
        # without a query is a document alone.
        is_unanswered = bool(row.values.get("is_impossible"))
        if is_unanswered:
            source.report.note("question that its paragraph does not answer, left out", row.where)
            query = ""

        rows = []
        for place, document in enumerate(documents):
            label = None
            if source.labelled:
                label = 0.0 if is_unanswered else _relevance(document, row, source)
            document_id = row_id if len(documents) == 1 else f"{row_id}.{place}"
            rows.append(LabelledRow(document_id, query, document.text, label, language=source.language))
        return rows

    def draw(self, rows: Sequence[LabelledRow], most: int | None) -> Sequence[LabelledRow]:
        """Return the rows with at most a number of queries; all documents stay, since fewer are easier to search."""
        if most is None or len(rows) <= most:
            return rows
        queries = list(dict.fromkeys(row.keys[0] for row in rows if row.text))
        drawn_queries = set(draw(queries, most))
        return [row if row.keys[0] in drawn_queries else _without_query(row) for row in rows]

    def count(self, rows: Sequence[LabelledRow]) -> tuple[int, str]:
        """Return the number of queries."""
        return len({row.keys[0] for row in rows if row.text}), "query"


def _relevance(document: Document, row: PlacedRow, source: RowSource) -> float:
    """Return the relevance of a document to the query of its row; 1 where the rows do not state it.

    Raises:
        CorpusError: if the row has a column of labels, and no value in it.
    """
    if document.relevance is not None:
        return document.relevance
    if source.columns.label in row.values:
        raise source.unlabelled_error(row, source.columns.label)
    return 1.0


def _without_query(row: LabelledRow) -> LabelledRow:
    """Return a row whose document is searched, without its query."""
    ids = None if row.ids is None else ("", row.ids[1])
    return replace(row, text="", label=0.0, ids=ids)
