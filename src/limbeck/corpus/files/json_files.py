"""JSON files: lines with a document or a labelled row each, lists of rows, and articles of questions.

An article of SQuAD has paragraphs, and a paragraph has a context and questions on it. An article of CMRC 2018, as its
authors publish it, is a single context.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
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

# Names of problems in the report.
INVALID_JSON = "line of invalid JSON"
NO_OBJECT = "JSON value that is not an object"
# UTF-16 writes some characters as a pair of surrogates; one alone is no character.
HALF_CHARACTER = "half of a character (a lone surrogate), replaced by U+FFFD"
# A surrogate as JSON escapes it: `\\ud83d`.
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_jsonl(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over the texts of a column, in a file with a JSON object on each line."""
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
    """Iterate over the rows of a file with a JSON object on each line."""
    for line, where, value in _json_lines(file):
        yield from _rows_of(_repaired(value, line.text, where, file.report), where, file)


def read_json_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a JSON file.

    The file is a list of rows or of articles, an object with such a list under `data`, or a single row. It can
    also have a row on each line: such files are often named `.json` too.
    """
    content = opening.read_whole(file.stream, file.path)
    try:
        text = content.decode(json.detect_encoding(content), errors="surrogatepass")
        value = _repaired(json.loads(text), text, str(file.path), file.report)
    except (ValueError, RecursionError):
        # The whole is no JSON, so each line may be.
        yield from read_jsonl_rows(replace(file, stream=io.BytesIO(content)))
        return
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    items = value if isinstance(value, list) else [value]
    for number, item in enumerate(items, start=1):
        yield from _rows_of(item, f"{file.path}:{number}", file)


class _JsonLine(NamedTuple):
    """A line of JSON.

    Args:
        line: The line as it was read.
        where: Its place, for messages.
        value: Its value, of any JSON type.
    """

    line: FoundText
    where: str
    value: Any


def _json_lines(file: OpenFile) -> Iterator[_JsonLine]:
    """Iterate over the lines of a file that are valid JSON; other lines are reported, and blank ones are skipped."""
    start = file.start
    for line in read_lines(file.stream, file.path, file.report, position=start.position, line=start.line):
        if not line.text or line.text.isspace():
            continue
        where = f"{file.path}:{line.line}"
        try:
            value = json.loads(line.text)
        except (ValueError, RecursionError):
            file.report.note(INVALID_JSON, where)
            continue
        yield _JsonLine(line, where, value)


def _repaired(value: Any, text: str, where: str, report: SourceReport) -> Any:
    """Return a JSON value with U+FFFD in place of lone surrogates, which JSON can escape but UTF-8 cannot hold.

    Args:
        value: The value.
        text: The JSON that the value was parsed from. Most has no escaped surrogate, which is found out fast.
        where: Place of the value, for messages.
        report: Receives a value that is repaired.
    """
    if _ESCAPED_SURROGATE.search(text) is None:
        return value
    repaired = _without_surrogates(value)
    if repaired != value:
        report.note(HALF_CHARACTER, where)
    return repaired


def _without_surrogates(value: Any) -> Any:
    """Return a JSON value with U+FFFD in place of lone surrogates, in all its texts and keys."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _rows_of(value: Any, where: str, file: OpenFile) -> Iterator[PlacedRow]:
    """Yield the one row of a JSON object, or a row for each question of an article of SQuAD or CMRC 2018."""
    if not isinstance(value, dict):
        file.report.note(NO_OBJECT, where)
        return
    if "context_text" in value and "qas" in value:
        yield from _rows_of_cmrc(value, where)
        return
    if "paragraphs" not in value:
        yield PlacedRow(where, value)
        return

    questions: list[tuple[str, dict[str, Any]]] = []  # Each with the context in front.
    try:
        for paragraph in value["paragraphs"]:
            questions += [(paragraph["context"], dict(question)) for question in paragraph["qas"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"The article at {where} is not in the format of SQuAD, in which an article has 'paragraphs', each "
            "with a 'context' and 'qas'."
        ) from error
    for number, (context, question) in enumerate(questions, start=1):
        place = f"{where}, question {question.get('id', number)}"
        yield PlacedRow(place, {"context": context, **question})


def _rows_of_cmrc(article: dict[str, Any], where: str) -> Iterator[PlacedRow]:
    """Yield a row for each question of an article as the authors of CMRC 2018 publish them, in the names of SQuAD.

    Such an article is one context, and its answers are texts without a place: the first place in the context is taken.
    """
    rows = []
    try:
        context = article["context_text"]
        for question in article["qas"]:
            row = {"context": context, "question": question["query_text"], "id": question["query_id"]}
            # A single answer may stand without a list. The test set has no answers.
            texts = question.get("answers")
            if isinstance(texts, str):
                texts = [texts]
            if texts is not None:
                row["answers"] = [{"text": text, "answer_start": context.find(text)} for text in texts]
            rows.append(row)
    except (AttributeError, KeyError, TypeError) as error:
        raise CorpusError(
            f"The article at {where} is not in the format of CMRC 2018, in which an article has a context_text and "
            "'qas', each with query_text, query_id and 'answers'."
        ) from error
    for row in rows:
        yield PlacedRow(f"{where}, question {row['id']}", row)
