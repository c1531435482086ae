"""Tables as labelled rows or as text: fields between commas or tabs, with names from the first line or the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from limbeck.corpus.files import opening
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow, suffix_of
from limbeck.corpus.files.table_fields import (
    TableRow,
    carriage_return_error,
    check_separator,
    read_comma_fields,
    read_tab_fields,
)
from limbeck.corpus.files.uneven_rows import UnevenRows
from limbeck.corpus.messages import list_columns, safe_name
from limbeck.corpus.source_report import NAME_TEXT_COLUMN, OTHER_COLUMN, SourceReport, items_behind
from limbeck.corpus.text.cursor import FoundText
from limbeck.errors import CorpusError

TABLES = (".csv", ".tsv", ".txt")
"""Suffixes of files whose first line has the names of the columns, unless the user gives them."""
_WORDS_OF_A_TEXT = 4
_SHOWN_CHARACTERS = 40
USUAL_TEXT_COLUMN = "text"
"""The column of the text where the user names none."""
COLUMN_FOUND = "table of which the column"
"""Beginning of the note on a table that lacks the usual column, and in which another one was found."""
_ROWS_THAT_SHOW_TEXTS = 100
_LONGEST_NAME = 24

_RowReader: TypeAlias = Callable[[OpenFile], Iterator[PlacedRow]]


def read_csv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a table with fields between commas; see `read_comma_fields`."""
    yield from _name_fields(read_comma_fields(file), ",", file)


def read_tsv_rows(file: OpenFile) -> Iterator[PlacedRow]:
    """Iterate over the rows of a table with fields between tabs; see `read_tab_fields`."""
    yield from _name_fields(read_tab_fields(file), "\t", file)


def read_csv_texts(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over the texts of a table with fields between commas; see `_read_texts`."""
    yield from _read_texts(file, read_csv_rows)


def read_tsv_texts(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over the texts of a table with fields between tabs; see `_read_texts`."""
    yield from _read_texts(file, read_tsv_rows)


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


def _read_texts(file: OpenFile, read_rows: _RowReader) -> Iterator[FoundText]:
    """Iterate over the texts of the column that was named, or else of the only column that has texts.

    Positions count rows, since the names of the columns stand at the beginning of the file.
    """
    rows_before = file.start.position
    column = _column_of_texts(file, read_rows)
    new_rows = items_behind(rows_before, read_rows(file), file.report)
    for number, row in enumerate(new_rows, start=rows_before + 1):
        text = row.values.get(column)
        if text is None:
            where = f"{file.path}, which has {list_columns(row.values)}"
            file.report.note(f"{OTHER_COLUMN} '{column}'", where)
        else:
            _, _, line = row.where.rpartition(":")
            yield FoundText(text, position=number, line=int(line))


def _column_of_texts(file: OpenFile, read_rows: _RowReader) -> str:
    """Return the column of the text: the one that the user named, or the only one whose first rows hold texts.

    Raises:
        CorpusError: if the first line is no header, or several columns or none may be the text.
    """
    # The beginning of the file is read a second time.
    unused_report = SourceReport()
    with opening.open_file(file.path, unused_report) as stream:
        rows = read_rows(OpenFile(stream, file.path, "", unused_report))
        first_rows = list(islice(rows, _ROWS_THAT_SHOW_TEXTS))
    # A file without rows has no text in any column.
    if not first_rows:
        return file.text_column
    problem = missing_header(first_rows[0])
    if problem is not None:
        raise CorpusError(f"{problem}; write the names of the columns into the first line of the file.")
    # Another name than the usual one is the user's, and counts even if there is no such column. Its rows are then left
    # out with a note, and a source without any other text is refused. The usual name may be the default, so without
    # such a column another is looked for.
    columns = list(first_rows[0].values)
    is_of_user = file.text_column != USUAL_TEXT_COLUMN
    if file.text_column in columns or is_of_user:
        return file.text_column
    if len(columns) == 1:
        return columns[0]

    text_columns = [column for column in columns if _holds_texts(column, first_rows)]
    if len(text_columns) != 1:
        may_be = "several columns that may be the text" if text_columns else "no column of the text by its looks"
        raise CorpusError(
            f"'{safe_name(file.path)}' has no column '{USUAL_TEXT_COLUMN}', and {may_be} "
            f"({list_columns(text_columns or columns)}). {NAME_TEXT_COLUMN}."
        )
    [text_column] = text_columns
    # A file that is read on from a later position has its note already.
    if file.start.at_start:
        file.report.note(f"{COLUMN_FOUND} '{text_column}' is read", str(file.path))
    return text_column


def _holds_texts(column: str, rows: Iterable[PlacedRow]) -> bool:
    """Whether a column has a value of several words, or one that is too long for the name of a class or a number."""
    values = [row.values[column] for row in rows]
    return any(len(value.split()) > 1 or len(value) > _LONGEST_NAME for value in values)


def _name_fields(rows: Iterable[TableRow], separator: str, file: OpenFile) -> Iterator[PlacedRow]:
    """Turn fields into rows with named columns. The names are the user's, or else the fields of the first row.

    Args:
        rows: The fields of each row.
        separator: The character between them.
        file: The table.

    Raises:
        CorpusError: for a first row that shows that the table is parted otherwise, or that names two columns alike.
    """
    header = list(file.layout.header)
    uneven_rows: UnevenRows | None = None
    for row in rows:
        if not row.fields:
            continue
        if not header:
            _check_layout(row.fields, separator, row.line, file)
            header = [name.strip() for name in row.fields]
            _check_header(header, file)
            continue
        if uneven_rows is None:
            uneven_rows = UnevenRows(file, len(header))
        if uneven_rows.has_fields(row):
            # A user who names the fields may leave out the last ones.
            values = dict(zip(header, row.fields, strict=False))
            yield PlacedRow(f"{file.path}:{row.line}", values)
    if uneven_rows is not None:
        uneven_rows.refuse_many()


def _check_layout(fields: Sequence[str], separator: str, line: int, file: OpenFile) -> None:
    """Refuse a table whose first row shows lines that end with CR, or one column that another separator parts.

    A name of several words is a text without a header, which is refused elsewhere.

    Args:
        fields: The fields of the first row.
        separator: The character between fields.
        line: Number of the row's last line.
        file: The table.
    """
    if any("\r" in name for name in fields):
        raise carriage_return_error(file.path, line)
    is_one_name = len(fields) == 1 and len(fields[0].split()) < _WORDS_OF_A_TEXT
    if is_one_name:
        check_separator(fields[0], separator, file.path)


def _check_header(header: list[str], file: OpenFile) -> None:
    """Refuse a header that names two columns alike."""
    repeated = {name for name in header if name and header.count(name) > 1}
    if repeated:
        raise CorpusError(
            f"The header of '{file.path}' names the column '{min(repeated)}' twice: rename one of the two columns."
        )
