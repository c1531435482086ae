"""Texts of a retrieval in files of their own."""

import pytest

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.retrieval_texts import put_texts


def test_a_document_with_two_relevances_to_a_query_is_refused():
    rows = [LabelledRow("0", "q1", "d1", 1.0), LabelledRow("1", "q1", "d1", 1.0), LabelledRow("2", "q2", "d1", 0.0)]
    texts = {"queries": {"q1": "a query", "q2": "another"}, "documents": {"d1": "a document"}}
    assert len(put_texts(rows, **texts, origin="here")) == 3
    rows.append(LabelledRow("3", "q1", "d1", 0.0))
    with pytest.raises(
        CorpusError, match="the document 'd1' two different relevances for the query 'q1': keep only one"
    ):
        put_texts(rows, **texts, origin="here")
