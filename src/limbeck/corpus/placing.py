"""One text of a shard to its documents: cleaned, cut where it is too long, with the place behind each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from limbeck.corpus.document import Document, clean_and_count, cut_text
from limbeck.corpus.limits import LONGEST_DOCUMENT
from limbeck.corpus.place import Place
from limbeck.corpus.source_report import SourceReport

CUT_DOCUMENT = f"document longer than {LONGEST_DOCUMENT:,} characters, cut"


def place_documents(text: str, where: str, place: Place, behind: Place, report: SourceReport) -> Iterator[Document]:
    """Iterate over the documents of one text, the first `place.within` left out.

    Args:
        text: As it was read.
        where: Where it stands, for messages.
        place: Moved behind every document before it is given.
        behind: The place behind the text.
        report: Receives what is repaired; muted until now if the text was begun before.
    """
    report.muted = report.muted and place.within > 0
    cleaned, replaced = clean_and_count(text)
    if not cleaned:
        report.note("empty document", where)
        return
    if replaced:
        report.note("document with control characters, replaced", where)
    parts = [part for piece in cut_text(cleaned, LONGEST_DOCUMENT) if (part := piece.strip())]
    if len(parts) > 1:
        report.note(CUT_DOCUMENT, where)
    report.muted = False
    for number, part in islice(enumerate(parts, start=1), place.within, None):
        if number < len(parts):
            place.within = number
        else:
            place.offset, place.line, place.within = behind.offset, behind.line, 0
        yield Document(part)


def text_value(value: Any, where: str, column: str, report: SourceReport) -> str | None:
    """Return a value of the text's column if it is text; what is not is counted.

    Args:
        value: The value.
        where: Where it stands.
        column: The column.
        report: Receives what is no text.
    """
    if isinstance(value, str):
        return value
    report.note("empty document" if value is None else f"column '{column}' that is not text", where)
    return None
