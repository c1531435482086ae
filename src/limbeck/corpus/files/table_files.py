"""Tables as labelled rows: fields between commas or tabs, with names from the first line or from the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow, suffix_of
from limbeck.corpus.files.table_fields import TableRow, read_comma_fields, read_tab_fields
from limbeck.errors import CorpusError

TABLES = (".csv", ".tsv", ".txt")
"""Suffixes of files whose first line has the names of the columns, unless the user gives them."""
_WORDS_OF_A_TEXT = 4
_SHOWN_CHARACTERS = 40


def read_csv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a table with fields between commas; see `read_comma_fields`."""
    yield from _name_fields(read_comma_fields(file), file)


def read_tsv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a table with fields between tabs; see `read_tab_fields`."""
    yield from _name_fields(read_tab_fields(file), file)


def missing_header(row: PlacedRow) -> str | None:
    """Return the beginning of an error if the table of a row seems to have no header; None if it seems to have one.

    The first line is taken for a row where it would name a column with a whole text, of four words or more.
    """
    table, _, _ = row.where.rpartition(":")
    if suffix_of(table) not in TABLES:
        return None
    for name in map(str, row.values):
        if len(name.split()) >= _WORDS_OF_A_TEXT:
            return f"{table} has no header: its first line would name a column '{name[:_SHOWN_CHARACTERS]}'"
    return None


def _name_fields(rows: Iterable[TableRow], file: OpenFile) -> Iterator[PlacedRow]:
    """Turn fields into rows with named columns. The names are the user's, or else the fields of the first row."""
    header = list(file.layout.header)
    for line, fields in rows:
        where = f"{file.path}:{line}"
        if not fields:
            continue
        if not header:
            header = [name.strip() for name in fields]
            _check_header(header, file)
            continue
        # A user who gives the names may leave out those of the last fields, which are ignored.
        has_too_many = len(fields) > len(header) and not file.layout.header
        if len(fields) < len(header) or has_too_many:
            file.report.note("row whose number of fields differs from the header's", where)
            continue
        yield PlacedRow(where, dict(zip(header, fields, strict=False)))


def _check_header(header: list[str], file: OpenFile) -> None:
    """Refuse a header that names two columns alike."""
    repeated = {name for name in header if name and header.count(name) > 1}
    if repeated:
        raise CorpusError(f"The header of '{file.path}' names the column '{min(repeated)}' twice: rename one.")
