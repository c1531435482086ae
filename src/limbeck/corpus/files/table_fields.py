"""The fields of tables, between commas or tabs, with or without quotation marks around them.

A field that is enclosed in quotation marks may hold the separator, newlines, and marks of its own, which are doubled.
Tables in other dialects, see `table_dialects`, are read as they were written where their first lines show it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.files import limits, opening
from limbeck.corpus.files.file_kinds import OpenFile, Quotes
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.files.table_dialects import ESCAPE, QUOTATION_MARK, USUAL_DIALECT, TableDialect, other_dialect
from limbeck.corpus.text.cursor import FoundText, characters_of
from limbeck.corpus.text.documents import next_batch
from limbeck.errors import CorpusError

QUOTED_TABLE = "table with quotation marks around fields, which are taken off"
AMBIGUOUS_TABLE = "table with fields between quotation marks, which are taken for a part of the text"
_LINES_THAT_SHOW_QUOTING = 1_000
_CHARACTERS_THAT_SHOW_QUOTING = 4_000_000
_FIELD_IS_TOO_LONG = "field larger than field limit"
_HAS_CARRIAGE_RETURN = "new-line character seen in unquoted field"
"""Parts of messages of the library."""
_SEPARATORS = {",": "','", "\t": "a tab", ";": "';'", "|": "'|'"}
"""Characters that may part the columns of a table, and their names in messages."""
_WAYS_OUT = {",": "Save the table with commas.", "\t": "Save the table with tabs."}
"""What to do about another separator than the one that is expected."""
# A field and the tab or newline behind it. The field is enclosed in marks (`"say ""hi"""`), or has no mark at all.
_TAB_FIELD = re.compile(r"""(?:"(?P<enclosed>(?:[^"]|"")*+)"|[^\t\n"]*+)[\t\n]""")


class TableRow(NamedTuple):
    """The fields of a row.

    Args:
        line: Number of its last line; a quoted field may hold newlines.
        fields: Its fields; none of an empty line.
    """

    line: int
    fields: list[str]


def read_comma_fields(file: OpenFile) -> Iterator[TableRow]:
    """Iterate over the rows of a table with fields between commas.

    Fields are enclosed in quotation marks, or written in the dialect that the first lines show.

    Raises:
        CorpusError: if a quotation mark opens a field and none closes it, so that rows would become a part of it, or
            if a field is too long.
    """
    marks_of_skipped: dict[int, int] = {}
    lines = read_lines(file.stream, file.path, file.report, marks_of_skipped=marks_of_skipped)
    beginning = _first_lines(lines)
    dialect = _other_dialect(beginning, ",", file) or USUAL_DIALECT
    yield from _read_quoted(chain(beginning, lines), ",", dialect, file, marks_of_skipped)


def read_tab_fields(file: OpenFile) -> Iterator[TableRow]:
    """Iterate over the rows of a table with fields between tabs.

    Quotation marks around fields are taken off where the table was written with them, as pandas writes a field that
    holds a tab, a newline or a mark. Elsewhere a mark is a character like any other, as in GLUE's files. Where the user
    has not said that, the first lines may also show another dialect.

    Raises:
        CorpusError: if a quotation mark opens a field of a quoted table and none closes it.
    """
    marks_of_skipped: dict[int, int] = {}
    all_lines = read_lines(file.stream, file.path, file.report, marks_of_skipped=marks_of_skipped)
    beginning = _first_lines(all_lines)
    lines = chain(beginning, all_lines)
    dialect = None
    if file.layout.quotes != "characters":
        dialect = _other_dialect(beginning, "\t", file)
    if dialect is not None:
        yield from _read_quoted(lines, "\t", dialect, file, marks_of_skipped)
        return

    # Lines in front of the first mark are split at tabs, whatever marks mean in this table.
    line_before: list[FoundText] = []
    for line in lines:
        if QUOTATION_MARK in line.text:
            yield from _read_from_first_mark(line, lines, line_before, file, marks_of_skipped)
            return
        yield _split_at_tabs(line)
        line_before = [line]


def carriage_return_error(path: Path | str, line: int) -> CorpusError:
    """Return the error for a table with a carriage return outside of an enclosed field.

    Args:
        path: The table.
        line: Number of the line.
    """
    return CorpusError(
        f"Cannot read '{path}': line {line} holds a carriage return (CR) outside quotation marks, as where lines end "
        "with CR alone. Save the table with LF at the end of each line."
    )


def check_separator(header: str, delimiter: str, path: Path | str) -> None:
    """Refuse a table whose header is a single field that another separator parts.

    Args:
        header: The only field of the header.
        delimiter: The character between fields.
        path: The table.

    Raises:
        CorpusError: with both separators and the way out.
    """
    for separator, name in _SEPARATORS.items():
        if separator in header:
            raise CorpusError(
                f"Cannot read '{path}': its columns seem to be parted by {name}, where {_SEPARATORS[delimiter]} is "
                f"expected. {_WAYS_OUT[delimiter]}"
            )


def _read_from_first_mark(
    first_marked: FoundText,
    further_lines: Iterator[FoundText],
    line_before: Sequence[FoundText],
    file: OpenFile,
    marks_of_skipped: Mapping[int, int],
) -> Iterator[TableRow]:
    """Iterate over the rows of a table with tabs, from its first line with a quotation mark on.

    Args:
        first_marked: That line.
        further_lines: The lines behind it.
        line_before: The line in front of it; none where the table begins with a mark.
        file: The table.
        marks_of_skipped: As for `_read_quoted`.
    """
    # The meaning of marks is judged by the lines that follow. The line before shows how many tabs a line has.
    judged_lines = [first_marked, *_first_lines(further_lines)]
    quotes = file.layout.quotes
    if quotes is None:
        quotes = _quotes_of([*line_before, *judged_lines])
        if quotes != "characters":
            # The user is told how marks were understood, since both may have been possible.
            note = QUOTED_TABLE if quotes == "fields" else AMBIGUOUS_TABLE
            file.report.note(note, f"{file.path}:{first_marked.line}")

    lines = chain(judged_lines, further_lines)
    if quotes == "fields":
        yield from _read_quoted(lines, "\t", USUAL_DIALECT, file, marks_of_skipped)
        return
    for line in lines:
        yield _split_at_tabs(line)


def _first_lines(lines: Iterator[FoundText]) -> list[FoundText]:
    """Take the next lines from an iterator, as many as the dialect of a table is judged by."""
    return next_batch(lines, _LINES_THAT_SHOW_QUOTING, _CHARACTERS_THAT_SHOW_QUOTING, characters_of)


def _other_dialect(lines: Sequence[FoundText], separator: str, file: OpenFile) -> TableDialect | None:
    """Return the unusual dialect that the first lines of a table show, and note it; None if they show none."""
    texts = [line.text for line in lines]
    is_cut = len(texts) == _LINES_THAT_SHOW_QUOTING or sum(map(len, texts)) >= _CHARACTERS_THAT_SHOW_QUOTING
    dialect = other_dialect(texts, separator, is_cut=is_cut)
    if dialect is not None:
        file.report.note(dialect.note, str(file.path))
    return dialect


def _split_at_tabs(line: FoundText) -> TableRow:
    """Return the row of a line without quoted fields."""
    if not line.text:
        return TableRow(line.line, [])
    return TableRow(line.line, line.text.split("\t"))


def _quotes_of(lines: Sequence[FoundText]) -> Quotes | None:
    """Return the use of quotation marks in a table, judged by some of its lines; None where both readings fit.

    They enclose fields if something shows that the writer meant it, before a mark stands elsewhere than around a field
    or doubled within one: a field with a doubled mark, with a carriage return, with a tab or a newline (without which
    lines would have different numbers of fields), or a header whose names are all enclosed.
    """
    text = "".join(f"{line.text}\n" for line in lines)
    numbers_of_tabs = {line.text.count("\t") for line in lines if line.text}
    lines_are_uneven = len(numbers_of_tabs) > 1
    shows_quoting = False
    # Without the first line of the table there is no header. With it, each of its names has to be enclosed.
    header_is_enclosed = lines[0].line == 1
    end_of_first_line = len(lines[0].text)
    position = 0
    while position < len(text):
        field = _TAB_FIELD.match(text, position)
        if field is None:
            # A mark within a field, a closing mark that is missing, or one that stands behind the lines at hand. If
            # fields before it are enclosed, reading goes on and refuses the field where its mark is never closed.
            whole_header_is_enclosed = header_is_enclosed and position > end_of_first_line
            return "fields" if shows_quoting or whole_header_is_enclosed else "characters"

        enclosed_text = field["enclosed"]
        if enclosed_text is not None:
            if _had_to_be_enclosed(enclosed_text, lines_are_uneven=lines_are_uneven):
                shows_quoting = True
        elif position < end_of_first_line:
            header_is_enclosed = False
        position = field.end()
    if shows_quoting or header_is_enclosed:
        return "fields"
    return None


def _had_to_be_enclosed(text: str, *, lines_are_uneven: bool) -> bool:
    """Whether the text between two quotation marks shows that these enclose a field.

    Args:
        text: The text.
        lines_are_uneven: Whether the lines of the table have different numbers of tabs, so that some tabs and newlines
            are a part of fields.
    """
    has_doubled_mark = '""' in text and "\n" not in text
    has_separator = "\t" in text or "\n" in text
    # A carriage return within a field is a reason to enclose it, which no other mark around it has.
    return has_doubled_mark or "\r" in text or (has_separator and lines_are_uneven)


class _CsvLines:
    """The lines of a table for `csv.reader`; it remembers the lines of the row that the reader is at.

    A row has several lines where an enclosed field holds newlines.

    Args:
        lines: The lines.
        mark: The character that encloses fields.
        file: The table.
        marks_of_skipped: Number of each line that was skipped for its length, to the quotation marks in it.

    Attributes:
        were_cut: Whether the lines have ended because the file is damaged.
    """

    def __init__(
        self, lines: Iterable[FoundText], mark: str, file: OpenFile, marks_of_skipped: Mapping[int, int]
    ) -> None:
        self._lines = lines
        self._mark = mark
        self._file = file
        self._marks_of_skipped = marks_of_skipped
        self._last_number = 0
        self._lines_of_row: list[FoundText] = []
        self.were_cut = False

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            # The numbers between two lines are those of skipped ones. In front of the first line there may also be
            # lines that were read elsewhere.
            for number in range(self._last_number + 1, line.line):
                if number in self._marks_of_skipped:
                    self._refuse_part_of_field(number)
            self._last_number = line.line
            self._lines_of_row.append(line)
            yield f"{line.text}\n"
        self.were_cut = opening.damage_of(self._file.stream) is not None

    def _refuse_part_of_field(self, skipped: int) -> None:
        """Refuse the table if a line was skipped that may not have been a whole row, but a part of an enclosed field.

        Args:
            skipped: Number of the line, which stood in front of the next one.
        """
        # Of a skipped line only the quotation marks were counted. Other marks may have opened a field there.
        marks_are_known = self._mark == QUOTATION_MARK
        # An odd number of marks leaves a field open.
        field_was_open = sum(line.text.count(self._mark) for line in self._lines_of_row) % 2 == 1
        line_opens_or_closes_field = self._marks_of_skipped[skipped] % 2 == 1
        if not marks_are_known or field_was_open or line_opens_or_closes_field:
            raise CorpusError(
                f"Cannot read '{self._file.path}': line {skipped} is longer than {limits.LONGEST_LINE:,} bytes and "
                "lies within a field in quotation marks. Shorten the field, or add the quotation mark that ends "
                "it."
            )

    def take_row(self) -> int:
        """Return the number of the row's last line, and forget its lines; the next row begins."""
        number = self._lines_of_row[-1].line
        self._lines_of_row = []
        return number

    def line_of_open_mark(self) -> int | None:
        """Return the number of the line that opens the row's unfinished field; None where the row has no marks."""
        line_of_mark = None
        is_within_field = False
        for line in self._lines_of_row:
            marks = line.text.count(self._mark)
            if marks and not is_within_field:
                line_of_mark = line.line
            # A doubled mark leaves the field as it is.
            if marks % 2 == 1:
                is_within_field = not is_within_field
        return line_of_mark


def _read_quoted(
    lines: Iterable[FoundText],
    delimiter: str,
    dialect: TableDialect,
    file: OpenFile,
    marks_of_skipped: Mapping[int, int],
) -> Iterator[TableRow]:
    """Iterate over rows whose fields may be enclosed in quotation marks; a row that damage ends is left out.

    Args:
        lines: The lines of the table that have not been read.
        delimiter: The character between fields.
        dialect: How the fields were written.
        file: The table.
        marks_of_skipped: Number of each line that was skipped for its length, to the quotation marks in it.

    Raises:
        CorpusError: if a quotation mark opens a field and none closes it, or a field is too long.
    """
    # The library's own limit of 131,072 characters would refuse the whole table.
    csv.field_size_limit(limits.LONGEST_LINE)
    csv_lines = _CsvLines(lines, dialect.mark, file, marks_of_skipped)
    rows = csv.reader(
        csv_lines,
        delimiter=delimiter,
        quotechar=dialect.mark,
        doublequote=not dialect.has_escapes,
        escapechar=ESCAPE if dialect.has_escapes else None,
        strict=True,
    )
    try:
        for fields in rows:
            if csv_lines.were_cut:
                return
            yield TableRow(csv_lines.take_row(), fields)
    except csv.Error as error:
        # The rest of the row is missing, which the report says.
        if csv_lines.were_cut:
            return
        raise _table_error(str(error), csv_lines, file.path) from error


def _table_error(problem: str, csv_lines: _CsvLines, path: Path | str) -> CorpusError:
    """Return the error for a table that `csv.reader` cannot read.

    Args:
        problem: The message of `csv`.
        csv_lines: The lines, as far as they were read.
        path: The table.
    """
    if _HAS_CARRIAGE_RETURN in problem:
        return carriage_return_error(path, csv_lines.take_row())
    line = csv_lines.line_of_open_mark()
    if line is None:
        last_line = csv_lines.take_row()
        # The library adds advice on Python behind a dash.
        reason, _, _ = problem.partition(" - ")
        return CorpusError(f"Cannot read '{path}' near line {last_line} as a table: {reason}.")
    if _FIELD_IS_TOO_LONG in problem:
        return CorpusError(
            f"Cannot read '{path}': a field that a quotation mark opens in line {line} is longer than "
            f"{limits.LONGEST_LINE:,} characters. Close it, or shorten it."
        )
    return CorpusError(
        f"Cannot read '{path}': a quotation mark opens a field in line {line}, and none closes it in front of "
        "a separator. Close it, or enclose the field and double the marks of its text."
    )
