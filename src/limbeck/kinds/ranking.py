"""Ranking: the documents of a query are put in order by a cross-encoder, which reads query and document together.

A row of the data set has a query with several documents. It becomes a `LabelledRow` for each document, with the query
as `text`, the document as `pair` and the document's relevance to the query as `label`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limbeck.core import intervals
from limbeck.core.blocks import counted, counted_rows
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import is_missing, number_of_truth, parse_value
from limbeck.corpus.rows.labelled_rows import LabelledRow, by_query
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import QUERY
from limbeck.errors import CorpusError
from limbeck.kinds import class_scores
from limbeck.kinds.beside_teacher import Disagreements
from limbeck.kinds.chance_scores import chance_of_queries
from limbeck.kinds.drawing import DRAW
from limbeck.kinds.kind import HeldOutRows, HeldOutScore, LabelTerm, Loss, Metric, Outputs, slices_of
from limbeck.kinds.losses import relevance_loss
from limbeck.kinds.ranking_scores import queries_of, score_query
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.regression import ValueKind
from limbeck.kinds.task import Predictions, Task


def mean_over_queries(name: str) -> Metric:
    """Return a metric: the mean over queries of one of the scores of `score_query`, named in `RETRIEVAL_METRICS`."""

    def metric(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
        return float(np.mean(_values_of_queries(name, predictions, rows)))

    return metric


def _values_of_queries(name: str, predictions: Predictions, rows: Sequence[LabelledRow]) -> list[float]:
    """Return one of the scores of `score_query`, named in `RETRIEVAL_METRICS`, of each query."""
    scores = np.asarray(predictions, np.float64)
    labels = class_scores.labels_of(rows).astype(np.float64)
    values = []
    for query in queries_of(rows):
        query_scores = score_query(scores[query], labels[query])
        values.append(getattr(query_scores, name))
    return values


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
        # Rows are of one query where their queries differ in surrounding spaces alone.
        query = query.strip()

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

    def arrange(self, rows: Sequence[LabelledRow], report: SourceReport) -> Sequence[LabelledRow]:
        """Return the documents of each query together, each once; see `by_query`."""
        return by_query(rows, report)

    def draw(self, rows: Sequence[LabelledRow], most: int | None) -> Sequence[LabelledRow]:
        """Return the rows of queries that are drawn at random; a query is drawn with all of its documents or none."""
        if most is None or len(rows) <= most:
            return rows
        queries = queries_of(rows)
        random.Random(DRAW).shuffle(queries)

        # One query is drawn in any case, even if it has more rows than asked for.
        chosen = queries[:1]
        count = len(rows[queries[0]])
        for query in queries[1:]:
            count += len(rows[query])
            if count > most:
                break
            chosen.append(query)

        # The rows keep the order that they have in the split. A query is a slice of the rows.
        drawn: list[LabelledRow] = []
        for query in sorted(chosen, key=lambda query: query.start):
            drawn += rows[query]
        return drawn

    def count(self, rows: Sequence[LabelledRow]) -> tuple[int, str]:
        """Return the number of queries."""
        return len(queries_of(rows)), "query"

    def size(self, rows: Sequence[LabelledRow]) -> str:
        """Return the numbers of queries and of pairs in words."""
        return counted_rows(len(rows), len(queries_of(rows)))

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return the interval of a mean over queries: the documents of a query are not drawn apart from each other."""
        return intervals.of_mean_share(_values_of_queries(metric, predictions, rows))

    def chance(self, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the scores of a random order."""
        labels = class_scores.labels_of(rows).astype(np.float64)
        return chance_of_queries([labels[query] for query in queries_of(rows)])

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Compare the student's and the teacher's scores of the documents of each query.

        distance = | (s - mean of s over the query) - (t - mean of t over the query) |, with the student's score s and
        the teacher's t: a shift of all scores of a query does not change the order of its documents.
        """
        student, teacher = (np.asarray(scores, dtype=np.float64) for scores in predictions)
        differences = student - teacher
        for query in queries_of(rows):
            differences[query] -= differences[query].mean()
        compared = super().disagreements(rows, predictions, outputs, task)
        assert compared is not None, "values are compared"
        return replace(compared, distances=np.abs(differences))

    def held_out_groups(self, rows: Sequence[Mapping[str, Any]], batch: Mapping[str, Any], first: int) -> Any:
        """Return the number of each document's query."""
        return np.array([row[QUERY] for row in rows], np.int64)

    def held_out_scores(
        self, predicted: NDArray[Any], labels: NDArray[Any], rows: HeldOutRows
    ) -> Sequence[HeldOutScore]:
        """Return the means over queries of nDCG@10 and MRR@10; they are undefined where a label is unknown."""
        if np.isnan(labels).any():
            return [HeldOutScore(name, value=None) for name in self.metrics]
        model_scores = predicted.astype(np.float64)
        scores_of_queries = [score_query(model_scores[query], labels[query]) for query in slices_of(rows.groups)]
        scores = []
        for name in self.metrics:
            values = [getattr(query_scores, name) for query_scores in scores_of_queries]
            scores.append(HeldOutScore(name, float(np.mean(values))))
        return scores

    def held_out_chance(self, labels: NDArray[Any], rows: HeldOutRows) -> dict[str, float]:
        """Return the scores of a random order; there are none where a label is unknown."""
        if np.isnan(labels).any():
            return {}
        return chance_of_queries([labels[query] for query in slices_of(rows.groups)])

    def held_out_agreement(self, student: NDArray[Any], teacher: NDArray[Any], rows: HeldOutRows) -> HeldOutScore:
        """Return Spearman's correlation of the scores: the teacher's scores are no relevance, which is 0 or more."""
        return HeldOutScore(self.held_out_metric, self.held_out_score(student, teacher))

    def loss(self, weights: Sequence[float] | None) -> Loss | None:
        """Return the binary cross entropy of scores with relevance."""
        return relevance_loss

    def hard_label(self) -> LabelTerm | None:
        """Return nothing: rankings learn the teacher's scores, and need no labels."""
        return None


class Document(NamedTuple):
    """A document of a query.

    Attributes:
        text: Text of the document.
        relevance: Relevance to the query, 0 or more; None where the row does not tell it.
    """

    text: str
    relevance: float | None


def read_documents(row: PlacedRow, columns: Sequence[str], label_column: str) -> list[Document]:
    """Return the documents of a query, each with its relevance where the row tells it.

    A row tells the relevance of its documents in one of two ways, of which labels take precedence:

    - by a column of labels: one number for each document;
    - by several columns of documents: the first column holds the relevant documents (relevance 1), for example
      `positive`, and the others hold irrelevant ones (relevance 0), for example `negative`.

    Args:
        row: The row of a ranking data set.
        columns: Names of the columns with documents; a value is a text or a list of texts.
        label_column: Name of the column with labels, which a row may lack. A negative label counts as 0, as in
            trec_eval; true counts as 1 and false as 0.

    Raises:
        CorpusError: if a document is not a text, or the number of labels is not that of the documents.
    """
    has_column_of_relevant = len(columns) > 1
    documents: list[Document] = []
    for place, column in enumerate(columns):
        value: Any = row.values[column]
        if value is None:
            continue
        relevance = None
        if has_column_of_relevant:
            relevance = 1.0 if place == 0 else 0.0
        texts = value if isinstance(value, list | tuple) else [value]
        for text in texts:
            if not isinstance(text, str):
                raise CorpusError(
                    f"{row.where} has a document that is not text in its column '{column}': {text!r:.40}."
                )
            documents.append(Document(text, relevance))

    # Labels take precedence over the columns.
    label_value: Any = row.named_value(label_column)
    if is_missing(label_value):
        return documents
    return _with_labels(documents, label_value, row, label_column)


def _with_labels(documents: Sequence[Document], label_value: Any, row: PlacedRow, label_column: str) -> list[Document]:
    """Return documents with the relevance that a column of labels gives them.

    Args:
        documents: The documents of the row.
        label_value: The value of the column: a label for each document in a list, or the label of a single document.
        row: The row.
        label_column: Name of the column.

    Raises:
        CorpusError: if the number of labels is not that of the documents, or a label is no number.
    """
    labels = list(label_value) if isinstance(label_value, list | tuple) else [label_value]
    if len(labels) != len(documents):
        raise CorpusError(
            f"{row.where} has {counted(len(documents), 'document')} and {counted(len(labels), 'label')} in its "
            f"column '{label_column}': give one label for each document, in the same order."
        )
    labelled_documents = []
    for document, label in zip(documents, labels, strict=True):
        relevance = parse_value(number_of_truth(label), row.where)
        labelled_documents.append(Document(document.text, relevance=max(0.0, relevance)))
    return labelled_documents
