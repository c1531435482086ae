"""`LabelledRow`: a text or a pair of texts with its label."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

Label: TypeAlias = int | float | tuple[int, ...] | tuple[float, ...]

WORD_GAP = "\t"
"""Between the words of a tagged sentence's text: some languages write words with spaces in them."""

NO_ANSWER = (-1, -1)
"""Label of a question that its context does not answer."""

_SHOWN_CHARACTERS = 80
"""Most characters of foreign text in a message."""
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One row of a labelled data set: what a corpus trains on, and what an evaluation scores.

    Of a ranking and of a retrieval it is one row for each document of a query. In a retrieval all documents are
    searched for every query, and a document that no query names has an empty `text`.

    Attributes:
        id: As the source has it, else the row number from 0. Rows of a corpus have none.
        text: The text, the context of a question, the query, or tagged words with `WORD_GAP` between them.
        pair: The second text, the question, or the document; None for single texts.
        label: The number of the class; 1 or 0 for each class, where a row may have several; the class of each word,
            and -100 for a word that is not scored; the value; the relevance of the document, NaN where a corpus does
            not know it; or the first character of the answer in `text` and the one after its last (`NO_ANSWER` where
            there is none). None where the row is unlabelled, and where its answer has no place in the context.
        answers: Every gold answer of a question, for scoring; empty where there is none.
        answer_starts: First character of each answer in `text`, -1 where the text does not hold it.
        language: Of the text, as an ISO 639-1 code.
        ids: Of a retrieval the ids of the query and of the document, each empty where there is none. None where the
            rows hold texts alone.
    """

    id: str
    text: str
    pair: str | None = None
    label: Label | None = None
    answers: tuple[str, ...] = ()
    answer_starts: tuple[int, ...] = ()
    language: str = "en"
    ids: tuple[str, str] | None = None

    @property
    def keys(self) -> tuple[str, str]:
        """Keys of the query and of the document of a retrieval: their ids, else their texts without spaces around."""
        query_id, document_id = self.ids or ("", "")
        document = self.pair or ""
        return query_id or self.text.strip(), document_id or document.strip()


def by_query(rows: Iterable[LabelledRow], report: SourceReport) -> list[LabelledRow]:
    """Return the rows of each query together, wherever they stood: queries in the order of their first rows.

    Every document of a query is returned once, though some data sets name it many times. In MS MARCO's triples, for
    example, each row has a query, a relevant document and an irrelevant one.

    Args:
        rows: A row for each document of a query.
        report: Receives the documents that are named again.

    Raises:
        CorpusError: for a document with two relevances to the same query.
    """
    # For each query (the text of a row), the first row of each of its documents (the second text, or pair).
    first_rows: dict[str, dict[str | None, LabelledRow]] = {}
    for row in rows:
        row_of_document = first_rows.setdefault(row.text, {})
        if row.pair not in row_of_document:
            row_of_document[row.pair] = row
            continue
        check_one_relevance(row_of_document[row.pair], row, "The ranking")
        report.note("document that is listed twice for its query, counted once", row.text[:_SHOWN_CHARACTERS])
    return list(chain.from_iterable(row_of_document.values() for row_of_document in first_rows.values()))


def check_one_relevance(first: LabelledRow, row: LabelledRow, origin: str) -> None:
    """Refuse a document that a query names twice, with two relevances.

    Args:
        first: The earlier row of query and document.
        row: A later one.
        origin: The source, for the message.

    Raises:
        CorpusError: naming both.
    """
    # A corpus may have documents of unknown relevance, whose label is NaN: as text it equals itself.
    if str(first.label) != str(row.label):
        raise CorpusError(
            f"{origin} gives the document '{(row.pair or '')[:_SHOWN_CHARACTERS]}' two different relevances for "
            f"the query '{row.text[:_SHOWN_CHARACTERS]}': keep only one of the two rows."
        )


def without_surrogates(text: str) -> str:
    """Return a text with U+FFFD for lone surrogates, which no file can hold; every character keeps its place."""
    return _LONE_SURROGATE.sub("\ufffd", text)
