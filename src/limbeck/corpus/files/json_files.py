"""JSON files: a document or a labelled row a line, lists of rows, and SQuAD's articles."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from limbeck.corpus.files import opening
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.messages import list_columns
from limbeck.corpus.rows.labelled_rows import without_surrogates
from limbeck.corpus.source_report import OTHER_COLUMN, SourceReport
from limbeck.corpus.text import documents
from limbeck.corpus.text.cursor import FoundText
from limbeck.errors import CorpusError


def read_jsonl(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over the texts of a column, a JSON object a line."""
    column = file.text_column
    for line, where, row in _json_lines(file):
        if not isinstance(row, dict):
            file.report.note("JSON line that is not an object", where)
            continue
        if column not in row:
            file.report.note(f"{OTHER_COLUMN} '{column}'", f"{where}, which has {list_columns(row)}")
            continue
        text = documents.text_value(row[column], where, column, file.report)
        if text is not None:
            yield line._replace(text=text)


def read_jsonl_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over rows, a JSON object a line."""
    for line, where, value in _json_lines(file):
        yield from _rows_of(_repaired(value, line.text, where, file.report), where, file)


def read_json_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """A list of rows, also under `data`; SQuAD's articles; or a row a line, which is often named `.json` too."""
    content = opening.read_whole(file.stream, file.path)
    try:
        text = content.decode(json.detect_encoding(content), errors="surrogatepass")
        value = _repaired(json.loads(text), text, str(file.path), file.report)
    except (ValueError, RecursionError):
        yield from read_jsonl_rows(file._replace(stream=io.BytesIO(content)))
        return
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    items = value if isinstance(value, list) else [value]
    for number, item in enumerate(items, start=1):
        yield from _rows_of(item, f"{file.path}:{number}", file)


HALF_CHARACTER = "half of a character (a lone surrogate), replaced by U+FFFD"
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _JsonLine(NamedTuple):
    """A line of JSON, its place for messages, and its value."""

    line: FoundText
    where: str
    value: Any


def _json_lines(file: OpenFile) -> Iterator[_JsonLine]:
    """Iterate over lines of JSON; invalid ones are counted."""
    start = file.start
    for line in read_lines(file.stream, file.path, file.report, position=start.position, line=start.line):
        if not line.text or line.text.isspace():
            continue
        where = f"{file.path}:{line.line}"
        try:
            value = json.loads(line.text)
        except (ValueError, RecursionError):
            file.report.note("line of invalid JSON", where)
            continue
        yield _JsonLine(line, where, value)


def _repaired(value: Any, text: str, where: str, report: SourceReport) -> Any:
    """Return a value of JSON with U+FFFD for half of a pair of surrogates, which JSON can escape and no text can hold.

    Args:
        value: The value.
        text: The JSON that it was parsed from: most has no such escape.
        where: Where it stands.
        report: Receives a value that is repaired.
    """
    if _ESCAPED_SURROGATE.search(text) is None:
        return value
    repaired = _without_surrogates(value)
    if repaired != value:
        report.note(HALF_CHARACTER, where)
    return repaired


def _without_surrogates(value: Any) -> Any:
    """Return a value of JSON whose texts have U+FFFD for surrogates that stand alone."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _rows_of(value: Any, where: str, file: OpenFile) -> Iterator[PlacedRow]:
    """Give the one row of a JSON object, or the questions of a SQuAD article."""
    if not isinstance(value, dict):
        file.report.note("JSON value that is not an object", where)
        return
    if "paragraphs" not in value:
        yield PlacedRow(where, value)
        return

    questions: list[tuple[str, dict[str, Any]]] = []
    try:
        for paragraph in value["paragraphs"]:
            questions += [(paragraph["context"], dict(question)) for question in paragraph["qas"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"The article at {where} is not in the format of SQuAD: paragraphs, each with a context and qas."
        ) from error
    for number, (context, question) in enumerate(questions, start=1):
        place = f"{where}, question {question.get('id', number)}"
        yield PlacedRow(place, {"context": context, **question})
