"""Files to labelled rows: JSON, CSV, TSV and parquet, each of them also through `.gz` and `.zst`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import datasets

from limbeck.corpus.guarded_stream import DamagedError
from limbeck.corpus.opening import FilePath, open_file, read_whole
from limbeck.corpus.parquet import open_parquet
from limbeck.corpus.readers import OpenFile, decoded_lines, kind_of
from limbeck.corpus.rows import PlacedRow, class_names
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

_BATCH_ROWS = 1000


def read_rows(path: FilePath, report: SourceReport) -> Iterator[PlacedRow]:
    """Iterate over the rows of one file of a known kind.

    Args:
        path: The file; its suffix decides how it is read.
        report: Receives what is passed over or repaired.

    Raises:
        CorpusError: if the operating system refuses to read the file, or it is not laid out as it must be.
    """
    kind = kind_of(path, ROW_READERS)
    assert kind is not None, path
    with open_file(path, report) as stream:
        yield from ROW_READERS[kind](OpenFile(stream, path, "", report))


def _read_jsonl(file: OpenFile) -> Iterator[PlacedRow]:
    for number, line in decoded_lines(file.stream, file.path, file.report):
        if not line or line.isspace():
            continue
        where = f"{file.path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            file.report.note("line of invalid JSON", where)
        else:
            yield from _rows_of(value, where, file)


def _read_json(file: OpenFile) -> Iterator[PlacedRow]:
    """A list of rows, also under `data`; SQuAD's articles; or a row a line, which is often named `.json` too."""
    content = read_whole(file.stream, file.path)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        yield from _read_jsonl(file._replace(stream=io.BytesIO(content)))
        return
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        yield from _rows_of(item, f"{file.path}:{number}", file)


def _rows_of(value: Any, where: str, file: OpenFile) -> Iterator[PlacedRow]:
    """Give the one row of a JSON object, or the questions of a SQuAD article."""
    if not isinstance(value, dict):
        file.report.note("JSON value that is not an object", where)
    elif "paragraphs" not in value:
        yield PlacedRow(where, value)
    else:
        try:
            pairs = [(paragraph["context"], dict(qa)) for paragraph in value["paragraphs"] for qa in paragraph["qas"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CorpusError(
                f"The article at {where} is not laid out as SQuAD's: paragraphs, each with a context and qas."
            ) from error
        for number, (context, qa) in enumerate(pairs, start=1):
            yield PlacedRow(f"{where}, question {qa.get('id', number)}", {"context": context, **qa})


def _read_csv(file: OpenFile) -> Iterator[PlacedRow]:
    lines = (f"{line}\n" for _, line in decoded_lines(file.stream, file.path, file.report))
    reader = csv.reader(lines)
    try:
        # A quoted field may hold newlines: a row is known by its last line.
        yield from _named_rows(((reader.line_num, fields) for fields in reader), file)
    except csv.Error as error:
        raise CorpusError(f"Cannot read '{file.path}' near line {reader.line_num} as CSV: {error}.") from error


def _read_tsv(file: OpenFile) -> Iterator[PlacedRow]:
    """Fields between tabs, as they are: a quotation mark is a character like any other, as in GLUE."""
    lines = decoded_lines(file.stream, file.path, file.report)
    yield from _named_rows(((number, line.split("\t") if line else []) for number, line in lines), file)


def _named_rows(rows: Iterable[tuple[int, list[str]]], file: OpenFile) -> Iterator[PlacedRow]:
    """Name the fields after the header, the first row."""
    header: list[str] = []
    for number, fields in rows:
        where = f"{file.path}:{number}"
        if not fields:
            continue
        if not header:
            header = [name.strip() for name in fields]
            twice = {name for name in header if name and header.count(name) > 1}
            if twice:
                raise CorpusError(f"The header of '{file.path}' names the column '{min(twice)}' twice: rename one.")
        elif len(fields) != len(header):
            file.report.note("row with another number of fields than the header", where)
        else:
            yield PlacedRow(where, dict(zip(header, fields, strict=True)))


def _read_parquet(file: OpenFile) -> Iterator[PlacedRow]:
    table = open_parquet(file.stream, file.path)
    names = class_names(datasets.Features.from_arrow_schema(table.schema_arrow))
    number = 0
    for batch in table.iter_batches(batch_size=_BATCH_ROWS):
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:  # Strings that are not UTF-8, times that no calendar has.
            raise DamagedError(f"a value that cannot be read: {error}") from error
        for values in rows:
            number += 1
            yield PlacedRow(f"{file.path}:{number}", values, names)


ROW_READERS: dict[str, Callable[[OpenFile], Iterator[PlacedRow]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".txt": _read_tsv,
    ".parquet": _read_parquet,
}
"""Suffix → reader of the rows of an open file."""
