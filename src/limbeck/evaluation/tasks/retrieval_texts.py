"""Texts of a retrieval that stand in files of their own: read by their ids, and put in the rows that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from limbeck.corpus.rows.labelled_rows import LabelledRow, check_one_relevance
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.sources import TextFile
from limbeck.evaluation.tasks.split_files import SplitFile, read_split_file
from limbeck.kinds.row_values import text_of
from limbeck.kinds.split_rows import require_columns

_SHOWN_CHARACTERS = 80
"""Most characters of foreign text in a message."""


def read_texts(file: SplitFile, layout: TextFile, report: SourceReport) -> dict[str, str]:
    """Return the texts of queries or documents, by their ids.

    Args:
        file: The file.
        layout: The columns of id and text. Of several columns of text only the last is required: in BEIR's files the
            others, such as a title, may be missing.
        report: Receives notes on lines that are left out.

    Raises:
        CorpusError: if the file cannot be read as a whole, a row lacks a column, or two texts have the same id.
    """
    needed = [layout.id, layout.text[-1]]
    texts: dict[str, str] = {}
    for row in read_split_file(file.path, file.source, report):
        require_columns(row, needed)
        parts = []
        for column in layout.text:
            if row.values.get(column) is None:
                continue
            part = text_of(row, column).strip()
            if part:
                parts.append(part)
        text_id = str(row.values[layout.id])
        text = " ".join(parts)
        first_text = texts.setdefault(text_id, text)
        if first_text != text:
            raise CorpusError(
                f"{row.where} has the id '{text_id[:_SHOWN_CHARACTERS]}' of an earlier text, but another text: "
                "give each text its own id."
            )
    return texts


def put_texts(
    rows: Sequence[LabelledRow],
    *,
    queries: Mapping[str, str] | None,
    documents: Mapping[str, str] | None,
    origin: str,
) -> list[LabelledRow]:
    """Replace ids in rows by texts, and add a row for each document that no row names, since it is searched too.

    Args:
        rows: Rows with the id of a query as `text` and that of a document as `pair`; or with the texts themselves,
            where there is no file of queries or documents.
        queries: Texts of the queries by their ids; None where the rows have the texts.
        documents: Texts of the documents by their ids; None where the rows have the texts.
        origin: The source, for messages.

    Raises:
        CorpusError: for an id of no text, an empty query, or a document with two relevances to the same query.
    """
    # Rows may name a query and a document twice, by ids or by texts. Both are refused if the relevances differ.
    first_rows: dict[tuple[str, str | None], LabelledRow] = {}
    for row in rows:
        # A row without a query is a document that is searched.
        if not row.text:
            continue
        query_and_document = (row.text, row.pair)
        first_row = first_rows.get(query_and_document)
        if first_row is None:
            first_rows[query_and_document] = row
        else:
            check_one_relevance(first_row, row, origin)
    if queries is None and documents is None:
        return list(rows)

    filled_rows = [_put_texts_of_row(row, queries, documents, origin) for row in rows]
    if documents is not None:
        filled_rows += _rows_of_unnamed(documents, filled_rows)
    return filled_rows


def _put_texts_of_row(
    row: LabelledRow, queries: Mapping[str, str] | None, documents: Mapping[str, str] | None, origin: str
) -> LabelledRow:
    """Replace the ids in a row by texts, and keep the ids; the arguments are those of `put_texts`."""
    query_id = ""
    query = row.text
    if queries is not None and row.text:
        query_id = row.text
        # An empty document can be searched, but an empty query asks for nothing.
        query = queries.get(query_id, "")
        if not query:
            raise _missing_text(origin, query_id, "queries")

    document_id = ""
    document = row.pair or ""
    if documents is not None and document:
        document_id = document
        if document_id not in documents:
            raise _missing_text(origin, document_id, "documents")
        document = documents[document_id]
    return replace(row, text=query, pair=document, ids=(query_id, document_id))


def _rows_of_unnamed(documents: Mapping[str, str], rows: Sequence[LabelledRow]) -> list[LabelledRow]:
    """Return a row without a query for each document that no row names.

    Args:
        documents: Texts of all documents by their ids.
        rows: The rows with their texts and ids.
    """
    named_ids = set()
    for row in rows:
        # The keys of a row are its ids, where it has any. All rows here have the ids of their documents.
        _, document_id = row.keys
        named_ids.add(document_id)
    further_rows = []
    for document_id, text in documents.items():
        if document_id not in named_ids:
            further_rows.append(LabelledRow(id=document_id, text="", pair=text, label=0.0, ids=("", document_id)))
    return further_rows


def _missing_text(origin: str, text_id: str, key: str) -> CorpusError:
    """Return the error for an id that the file of `queries` or `documents` lacks."""
    return CorpusError(f"{origin} names '{text_id[:_SHOWN_CHARACTERS]}', for which the file of {key} has no text.")
