"""Tables whose first line names the columns: fields between commas or tabs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from limbeck.corpus.files import opening
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.files.lines import read_lines
from limbeck.errors import CorpusError

TABLES = (".csv", ".tsv", ".txt")
"""Kinds of files whose first line has the names of the columns."""
_WORDS_OF_A_TEXT = 4


def read_csv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a table with fields between commas."""
    lines = _CsvLines(file)
    reader = csv.reader(lines)
    try:
        yield from _name_fields(_whole_rows(reader, lines), file)
    except csv.Error as error:
        raise CorpusError(f"Cannot read '{file.path}' near line {reader.line_num} as CSV: {error}.") from error


def read_tsv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Fields between tabs, as they are: a quotation mark is a character like any other, as in GLUE."""
    lines = read_lines(file.stream, file.path, file.report)
    rows = ((number, text.split("\t") if text else []) for text, _, number in lines)
    yield from _name_fields(rows, file)


def headless(row: PlacedRow) -> str | None:
    """Return that a row's table has no header, to begin an error with, if the name of a column is a whole text."""
    table, _, _ = row.where.rpartition(":")
    if PurePosixPath(table).suffix not in TABLES:
        return None
    for name in map(str, row.values):
        if len(name.split()) >= _WORDS_OF_A_TEXT:
            return f"{table} has no header: its first line would name a column '{name[:40]}'"
    return None


class _CsvLines:
    """The lines of a table for `csv.reader`.

    Attributes:
        were_cut: Whether all lines were read and damage has ended them.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.were_cut = False

    def __iter__(self) -> Iterator[str]:
        for line in read_lines(self._file.stream, self._file.path, self._file.report):
            yield f"{line.text}\n"
        self.were_cut = opening.damage_of(self._file.stream) is not None


def _whole_rows(reader: Iterator[list[str]], lines: _CsvLines) -> Iterator[tuple[int, list[str]]]:
    """Iterate over rows with their line numbers, but not over one that ends with damage.

    A quoted field may hold newlines, so a row is known by its last line.
    """
    for fields in reader:
        if not lines.were_cut:
            yield reader.line_num, fields  # type: ignore[attr-defined]


def _name_fields(rows: Iterable[tuple[int, list[str]]], file: OpenFile) -> Iterator[PlacedRow]:
    """Name the fields after the header: the first row, unless it is given."""
    header = list(file.header)
    for number, fields in rows:
        where = f"{file.path}:{number}"
        if not fields:
            continue
        if not header:
            header = [name.strip() for name in fields]
            _check_header(header, file)
            continue
        # Further fields are ignored where the header was given.
        has_too_many = len(fields) > len(header) and not file.header
        if len(fields) < len(header) or has_too_many:
            file.report.note("row whose number of fields differs from the header's", where)
            continue
        yield PlacedRow(where, dict(zip(header, fields, strict=False)))


def _check_header(header: list[str], file: OpenFile) -> None:
    repeated = {name for name in header if name and header.count(name) > 1}
    if repeated:
        raise CorpusError(f"The header of '{file.path}' names the column '{min(repeated)}' twice: rename one.")
