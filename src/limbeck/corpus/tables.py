"""Tables whose first line names the columns: fields between commas or tabs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from limbeck.corpus import opening
from limbeck.corpus.file_kinds import OpenFile, PlacedRow
from limbeck.corpus.lines import read_lines
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    pass


def read_csv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a table with fields between commas."""
    cut = False

    def lines() -> Iterator[str]:
        nonlocal cut
        yield from (f"{line.text}\n" for line in read_lines(file.stream, file.path, file.report))
        cut = opening.damage_of(file.stream) is not None

    reader = csv.reader(lines())
    try:
        # A quoted field may hold newlines: a row is known by its last line, and one that ends with damage is not whole.
        yield from _named_rows(((reader.line_num, fields) for fields in reader if not cut), file)
    except csv.Error as error:
        raise CorpusError(f"Cannot read '{file.path}' near line {reader.line_num} as CSV: {error}.") from error


def read_tsv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Fields between tabs, as they are: a quotation mark is a character like any other, as in GLUE."""
    lines = read_lines(file.stream, file.path, file.report)
    yield from _named_rows(((number, text.split("\t") if text else []) for text, _, number in lines), file)


def _named_rows(rows: Iterable[tuple[int, list[str]]], file: OpenFile) -> Iterator[PlacedRow]:
    """Name the fields after the header: the first row, unless it is given."""
    header = list(file.header)
    for number, fields in rows:
        where = f"{file.path}:{number}"
        if not fields:
            continue
        if not header:
            header = [name.strip() for name in fields]
            twice = {name for name in header if name and header.count(name) > 1}
            if twice:
                raise CorpusError(f"The header of '{file.path}' names the column '{min(twice)}' twice: rename one.")
        elif len(fields) < len(header) or (len(fields) > len(header) and not file.header):
            file.report.note("row whose number of fields differs from the header's", where)
        else:
            yield PlacedRow(where, dict(zip(header, fields, strict=False)))


TABLES = (".csv", ".tsv", ".txt")
"""Kinds of files whose first line has the names of the columns."""

_WORDS_OF_A_TEXT = 4


def headless(row: PlacedRow) -> str | None:
    """Return that a row's table has no header, to begin an error with, if the name of a column is a whole text."""
    place = row.where.rpartition(":")[0]
    text = next((name for name in map(str, row.values) if len(name.split()) >= _WORDS_OF_A_TEXT), None)
    if text is None or PurePosixPath(place).suffix not in TABLES:
        return None
    return f"{place} has no header: its first line would name a column '{text[:40]}'"
